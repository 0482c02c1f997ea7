/**
 * I/O thread: does one blocking file-system call after the other, so that a lost mount blocks a thread and
 * never the main one. Requests come as messages; descriptors are numbers of the process, so any thread may read
 * from a file that another has opened, but the one that opened it must close it (Node closes at a thread's
 * end what that thread has opened).
 */
import { isUtf8 } from "node:buffer";
import { closeSync, fstatSync, openSync, readSync, readdirSync, readlinkSync, statSync } from "node:fs";
import type { BigIntStats, Dirent } from "node:fs";
import { parentPort } from "node:worker_threads";
import { errnoName } from "../base/errno.ts";
import { NOWHERE } from "./errors.ts";
import type { SystemFault } from "./errors.ts";
import { FOLDER_MARKS, LISTED_HIDDEN } from "./types.ts";
import type { NameFilter } from "./types.ts";

export interface FoundFile {
  size: number;
  mtimeNs: bigint;
  inode: bigint;
  device: bigint;
  kind: "file" | "folder" | "other";
  /** Of 512 bytes, that it takes up. */
  blocks: number;
}

export interface OpenedFile extends FoundFile {
  fd: number;
}

/** `path` goes into messages; `read` uses `fd`. */
export type IoRequest =
  | { op: "open" | "stat" | "list"; path: string }
  | { op: "names"; path: string; filter?: NameFilter }
  | {
      op: "read";
      path: string;
      fd: number;
      buffer: SharedArrayBuffer;
      byteOffset: number;
      offset: number;
      length: number;
      /** What the file must still be behind the read: a descriptor follows what is written over it in place. */
      expected?: { size: number; mtimeNs: bigint };
    }
  | { op: "close"; path: string; fd: number };

export interface IoResults {
  open: OpenedFile;
  stat: FoundFile;
  names: string[];
  list: (FoundFile & { path: string })[];
  /** Bytes read, fewer than asked for at the end of the file only; `changed`: it is not what was expected. */
  read: { bytes: number; changed: FoundFile | undefined };
}

export type IoCall = Exclude<IoRequest, { op: "close" }>;

/** `more`: how much a listing asked beyond one question: folders and links. */
export type IoReply =
  | { value: IoResults[keyof IoResults]; more?: number }
  | { fault: SystemFault; more?: number }
  | { closed: true };

/** One readSync moves at most 2^31 − 1 bytes. */
const READ_LIMIT = 1 << 30;
/** In a row: no signal comes that often. */
const INTERRUPTS = 100;

export function run(): void {
  const port = parentPort!;
  port.on("message", (request: IoRequest) => {
    port.postMessage(request.op === "close" ? close(request.fd) : answer(request));
  });
}

/** The descriptor is gone whatever the answer is, and nothing was written through it. */
function close(fd: number): IoReply {
  try {
    closeSync(fd);
  } catch {
    // a server that was evicted meanwhile says so here
  }
  return { closed: true };
}

/** Stats and reads of folders of the call under way. */
let asked = 0;

function answer(request: IoCall): IoReply {
  asked = 0;
  const reply = outcome(request);
  return asked > 1 ? { ...reply, more: asked - 1 } : reply;
}

function outcome(request: IoCall): Exclude<IoReply, { closed: true }> {
  try {
    return { value: perform(request) };
  } catch (error) {
    const { message, path, byteOffset } = error as NodeJS.ErrnoException & { byteOffset?: number };
    const code = errnoName(error) ?? "unknown";
    return { fault: { code, message, path: path ?? request.path, byteOffset } };
  }
}

function perform(request: IoCall): IoResults[keyof IoResults] {
  switch (request.op) {
    case "open": {
      const fd = openSync(request.path, "r");
      try {
        return { fd, ...found(fstatSync(fd, { bigint: true })) };
      } catch (error) {
        closeSync(fd);
        throw error;
      }
    }
    case "stat":
      return found(stat(request.path));
    case "names":
      return namesBelow(request.path, request.filter);
    case "list":
      return namesBelow(request.path).map((path) => ({
        path,
        ...found(stat(`${request.path}/${path}`)),
      }));
    case "read": {
      let done = 0;
      while (done < request.length) {
        const length = Math.min(READ_LIMIT, request.length - done);
        const target = new Uint8Array(request.buffer, request.byteOffset + done, length);
        let bytes: number;
        try {
          bytes = readThrough(request.fd, target, request.offset + done);
        } catch (error) {
          throw Object.assign(error as Error, { byteOffset: request.offset + done });
        }
        if (bytes === 0) break;
        done += bytes;
      }
      return { bytes: done, changed: changedSince(request.fd, request.expected) };
    }
  }
}

/** 1.4 µs; on Lustre the locks that came with the read answer it. */
function changedSince(fd: number, expected: { size: number; mtimeNs: bigint } | undefined): FoundFile | undefined {
  if (expected === undefined) return undefined;
  try {
    const now = found(fstatSync(fd, { bigint: true }));
    return now.size === expected.size && now.mtimeNs === expected.mtimeNs ? undefined : now;
  } catch {
    return undefined; // Lustre with a lost target: the stripes that are there can be read, and the size not be told
  }
}

/** A signal is no fault of the storage; libuv goes on after one in every call but this. */
function readThrough(fd: number, target: Uint8Array, offset: number): number {
  for (let interrupts = 0; ; interrupts++) {
    try {
      return readSync(fd, target, 0, target.byteLength, offset);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EINTR" || interrupts === INTERRUPTS) throw error;
    }
  }
}

function stat(path: string): BigIntStats {
  asked++;
  return statSync(path, { bigint: true });
}

function found(stats: BigIntStats): FoundFile {
  return {
    size: Number(stats.size),
    mtimeNs: stats.mtimeNs,
    inode: stats.ino,
    device: stats.dev,
    kind: stats.isFile() ? "file" : stats.isDirectory() ? "folder" : "other",
    blocks: Number(stats.blocks),
  };
}

/** Plain files below `folder`, in byte order of their paths. Links are followed; hidden names are left out, save `LISTED_HIDDEN`. */
function namesBelow(folder: string, filter?: NameFilter): string[] {
  const names: string[] = [];
  // Folders on the way down, by device and inode: a link to one of them would never end.
  const above = new Set<string>();
  /** Those that the folder lies in: a link to one would bring all that is around it. */
  let around: Set<string> | undefined;
  const walk = (relative: string, whole: boolean, inside: boolean, linked: boolean): void => {
    const path = relative === "" ? folder : `${folder}/${relative}`;
    const identity = identityOf(path);
    if (above.has(identity) || (linked && (around ??= foldersAround(folder)).has(identity))) return;
    above.add(identity);
    asked++;
    const entries = readdirSync(path, { withFileTypes: true });
    const marked = inside || entries.some(({ name }) => FOLDER_MARKS.includes(name));
    const all = whole || (marked && filter?.files.test(relative) === true);
    for (const entry of entries) {
      if (entry.name.startsWith(".") && !(marked && LISTED_HIDDEN.includes(entry.name))) continue;
      const child = relative === "" ? entry.name : `${relative}/${entry.name}`;
      const isFile = all || filter!.files.test(child);
      const isFolder = all || filter!.folders.test(child);
      if (!isFile && !isFolder) continue;
      if (entry.name.includes("\ufffd")) refuseForeign(path, entry.name);
      const kind = kindOf(entry, `${folder}/${child}`, isFile);
      // A folder that the pattern for files names may be a shard.
      if (kind === "folder" && (isFolder || holdsMark(`${folder}/${child}`)))
        walk(child, all, marked, entry.isSymbolicLink());
      else if (kind === "file" && isFile) names.push(child);
    }
    above.delete(identity);
  };
  walk("", filter === undefined, false, false);
  return names
    .map((name) => ({ name, bytes: Buffer.from(name) }))
    .sort((a, b) => Buffer.compare(a.bytes, b.bytes))
    .map(({ name }) => name);
}

/** By device and inode. */
function identityOf(path: string): string {
  const { dev, ino } = stat(path);
  return `${dev}:${ino}`;
}

function foldersAround(folder: string): Set<string> {
  const found = new Set<string>();
  for (let path = `${folder}/..`; ; path += "/..") {
    const identity = identityOf(path);
    // The root lies in itself.
    if (found.has(identity)) return found;
    found.add(identity);
  }
}

/** Node gives U+FFFD for bytes of a name that are no UTF-8: no file has the name that it gives, or a different one. */
function refuseForeign(folder: string, shown: string): void {
  for (const name of readdirSync(folder, { encoding: "buffer" })) {
    if (isUtf8(name) || name.toString() !== shown) continue;
    const escaped = name.toString("latin1").replace(/[\x80-\xff]/g, (byte) => `\\x${byte.charCodeAt(0).toString(16)}`);
    throw Object.assign(new Error("a name that is not UTF-8"), { code: "EILSEQ", path: `${folder}/${escaped}` });
  }
}

function holdsMark(folder: string): boolean {
  asked++;
  return readdirSync(folder).some((name) => FOLDER_MARKS.includes(name));
}

/** `wanted`: a link that leads nowhere throws with its path, because a shard that is missing is never passed over in silence. */
function kindOf(entry: Dirent, path: string, wanted: boolean): FoundFile["kind"] {
  if (entry.isFile()) return "file";
  if (entry.isDirectory()) return "folder";
  if (!entry.isSymbolicLink()) return "other";
  try {
    return found(stat(path)).kind;
  } catch (error) {
    const leadsNowhere = LEADS_NOWHERE.has((error as NodeJS.ErrnoException).code ?? "");
    if (!leadsNowhere) throw error;
    if (!wanted) return "other";
    throw Object.assign(new Error(`it leads to ${readlinkSync(path)}`), { code: NOWHERE, path });
  }
}

const LEADS_NOWHERE: ReadonlySet<string> = new Set(["ENOENT", "ENOTDIR", "ELOOP"]);
