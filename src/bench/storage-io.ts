/**
 * The calls of `bench storage` on the mount: Node's own, synchronous, on a thread that may be left in one of them.
 *
 * Contract: no file is opened through a link. What is written is random, and no two blocks of 4 KiB are alike, so that nothing is compressed
 * or stored once for many. The buffer is WebAssembly's memory: it begins at a page, as O_DIRECT wants it, which no Node buffer does; and it
 * was written to before it is written from: Lustre 2.17 refuses to write 4 MiB from memory never touched (EFAULT).
 *
 * @example
 * doJob({ do: "read", spans: [{ path: "/d/a.tar", offset: 0, length: 1 << 30 }], chunk: 8 << 20, direct: false }, () => undefined);
 */
import { randomBytes, randomFillSync } from "node:crypto";
import {
  closeSync,
  constants,
  fstatSync,
  fsyncSync,
  lstatSync,
  mkdtempSync,
  openSync,
  readFileSync,
  readdirSync,
  readSync,
  rmSync,
  statfsSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import type { Done, Job, Listed, Moved, Span, Step } from "./storage-jobs.ts";

/** Called before each call to the mount. */
export type Watcher = (path: string, byte: number, step: Step) => void;

/** What the folder is called, and what nobody else calls one. */
export const PREFIX = ".athanor-bench-";
/** The largest `chunk`. */
export const BUFFER = 16 << 20;
const BLOCK = 4096;
const { O_CREAT, O_DIRECT, O_NOFOLLOW, O_RDONLY, O_WRONLY } = constants;

let buffer: Buffer | undefined;

function memory(): Buffer {
  if (buffer === undefined) {
    buffer = Buffer.from(new WebAssembly.Memory({ initial: BUFFER >> 16 }).buffer);
    randomFillSync(buffer);
  }
  return buffer;
}

export function doJob(job: Job, watch: Watcher): Done {
  switch (job.do) {
    case "make":
      watch(job.parent, 0, "make");
      return { folder: mkdtempSync(join(job.parent, PREFIX)) };
    case "space": {
      watch(job.path, 0, "look at");
      const { bsize, bavail, blocks } = statfsSync(job.path);
      return { available: bsize * bavail, total: bsize * blocks };
    }
    case "list":
      return list(job.path, job.most, watch);
    case "read":
      return { moved: timed(job.spans, (span) => readSpan(span, job, watch)) };
    case "write": {
      if (job.fresh) for (const { path } of job.spans) remove(path, watch);
      const moved = timed(job.spans, (span) => writeSpan(span, job, watch));
      if (job.sync === "behind") for (const { path } of job.spans) syncOf(path, watch);
      return { moved };
    }
    case "remove":
      for (const path of job.paths) remove(path, watch);
      return { removed: true };
  }
}

/** `work` gives bytes and milliseconds of fsync. */
function timed(spans: readonly Span[], work: (span: Span) => { bytes: number; syncMs: number }): Moved {
  memory();
  const before = { cpu: process.cpuUsage(), disk: diskBytes() };
  const begin = now();
  const moved = { bytes: 0, begin, end: begin, syncMs: 0, times: [] as number[] };
  for (const span of spans) {
    const { bytes, syncMs } = work(span);
    const end = now();
    moved.times.push(end - moved.end);
    moved.end = end;
    moved.bytes += bytes;
    moved.syncMs += syncMs;
  }
  const { user, system } = process.cpuUsage(before.cpu);
  return { ...moved, cpu: (user + system) / 1e6, disk: diskBytes() - before.disk };
}

function readSpan(
  { path, offset, length }: Span,
  { chunk, direct }: { chunk: number; direct: boolean },
  watch: Watcher,
) {
  const target = memory();
  watch(path, offset, "open");
  const file = openSync(path, O_RDONLY | O_NOFOLLOW | (direct ? O_DIRECT : 0));
  let bytes = 0;
  while (bytes < length) {
    watch(path, offset + bytes, "read");
    // With O_DIRECT lengths are whole blocks, also at the end of the file.
    const wanted = Math.min(chunk, direct ? Math.ceil((length - bytes) / BLOCK) * BLOCK : length - bytes);
    const read = readSync(file, target, 0, wanted, offset + bytes);
    if (read === 0) throw fault("ENODATA", `ends at byte ${offset + bytes}, expected ${offset + length}`, path);
    bytes += Math.min(read, length - bytes);
  }
  watch(path, offset + bytes, "close");
  closeSync(file);
  return { bytes, syncMs: 0 };
}

function writeSpan({ path, offset, length }: Span, { chunk, sync }: { chunk: number; sync: string }, watch: Watcher) {
  const source = memory();
  watch(path, offset, "open");
  const file = openSync(path, O_WRONLY | O_CREAT | O_NOFOLLOW, 0o600);
  let bytes = 0;
  while (bytes < length) {
    watch(path, offset + bytes, "write");
    const wanted = Math.min(chunk, length - bytes);
    stamp(source, wanted);
    for (let written = 0; written < wanted;)
      written += writeSync(file, source, written, wanted - written, offset + bytes + written);
    bytes += wanted;
  }
  const begin = now();
  if (sync === "within") {
    watch(path, offset + bytes, "fsync");
    fsyncSync(file);
  }
  const syncMs = now() - begin;
  watch(path, offset + bytes, "close");
  const { size } = fstatSync(file);
  closeSync(file);
  if (size < offset + length) throw fault("EIO", `has ${size} bytes, ${offset + length} were written`, path);
  return { bytes, syncMs };
}

const nonce = randomBytes(6).readUIntBE(0, 6);
let stamped = 0;

/** Makes each block one that was never written: 4096 numbers for 16 MiB, some 20 µs. */
function stamp(target: Buffer, length: number): void {
  for (let at = 0; at < length; at += BLOCK) target.writeDoubleLE(nonce + ++stamped, Math.min(at, length - 8));
}

function syncOf(path: string, watch: Watcher): void {
  watch(path, 0, "fsync");
  const file = openSync(path, O_WRONLY | O_NOFOLLOW);
  fsyncSync(file);
  closeSync(file);
}

/** Other processes may still be making files in it, until their ends have come. */
function remove(path: string, watch: Watcher): void {
  watch(path, 0, "remove");
  for (let tries = 0; ; tries++) {
    try {
      return rmSync(path, { recursive: true, force: true });
    } catch (error) {
      if (tries === 100 || (error as NodeJS.ErrnoException).code !== "ENOTEMPTY") throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 50);
    }
  }
}

function list(path: string, most: number, watch: Watcher): Done {
  const files: Listed[] = [];
  let left = most;
  const walk = (folder: string): void => {
    watch(folder, 0, "look at");
    const entries = readdirSync(folder, { withFileTypes: true }).sort((a, b) => (a.name < b.name ? -1 : 1));
    for (const entry of entries) {
      if (entry.name.startsWith(".") || left-- <= 0) continue;
      const found = join(folder, entry.name);
      if (entry.isDirectory()) walk(found);
      else if (entry.isFile()) look(found);
    }
  };
  const look = (file: string): boolean => {
    watch(file, 0, "look at");
    const found = lstatSync(file);
    if (found.isFile()) files.push({ path: file, size: found.size, stored: found.blocks * 512 });
    return found.isDirectory();
  };
  if (look(path)) walk(path);
  return { files, cut: left < 0 };
}

const now = (): number => Number(process.hrtime.bigint()) / 1e6;

function diskBytes(): number {
  return Number(/^read_bytes: (\d+)/m.exec(readFileSync("/proc/self/io", "latin1"))?.[1] ?? 0);
}

function fault(code: string, message: string, path: string): NodeJS.ErrnoException {
  return Object.assign(new Error(message), { code, path });
}
