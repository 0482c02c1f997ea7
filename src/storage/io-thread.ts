/**
 * I/O thread: does one blocking file-system call after the other, so that a lost mount blocks a thread and
 * never the main one. Requests come as messages; descriptors are numbers of the process, so any thread may read
 * from a file that another has opened, but the one that opened it must close it (Node closes at a thread's
 * end what that thread has opened).
 */
import { closeSync, fstatSync, openSync, readSync, readdirSync, statSync } from "node:fs";
import type { BigIntStats, Dirent } from "node:fs";
import { parentPort } from "node:worker_threads";
import type { SystemFault } from "./errors.ts";
import type { NameFilter } from "./types.ts";

export interface FoundFile {
  size: number;
  mtimeNs: bigint;
  inode: bigint;
  device: bigint;
  kind: "file" | "folder" | "other";
}

export interface OpenedFile extends FoundFile {
  fd: number;
}

/** `path` goes into messages; `read` uses `fd`. `close` is not answered. */
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
    }
  | { op: "close"; path: string; fd: number };

export interface IoResults {
  open: OpenedFile;
  stat: FoundFile;
  names: string[];
  list: (FoundFile & { path: string })[];
  /** Bytes read; fewer than asked for at the end of the file only. */
  read: number;
}

export type IoCall = Exclude<IoRequest, { op: "close" }>;

export type IoReply = { value: IoResults[keyof IoResults] } | { fault: SystemFault };

/** One readSync moves at most 2^31 − 1 bytes. */
const READ_LIMIT = 1 << 30;

export function run(): void {
  const port = parentPort!;
  port.on("message", (request: IoRequest) => {
    if (request.op === "close") closeSync(request.fd);
    else port.postMessage(answer(request));
  });
}

function answer(request: IoCall): IoReply {
  try {
    return { value: perform(request) };
  } catch (error) {
    const { code, message, path } = error as NodeJS.ErrnoException;
    return { fault: { code: code ?? "unknown", message, path: path ?? request.path } };
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
      return found(statSync(request.path, { bigint: true }));
    case "names":
      return namesBelow(request.path, request.filter);
    case "list":
      return namesBelow(request.path).map((path) => ({
        path,
        ...found(statSync(`${request.path}/${path}`, { bigint: true })),
      }));
    case "read": {
      let done = 0;
      while (done < request.length) {
        const length = Math.min(READ_LIMIT, request.length - done);
        const target = new Uint8Array(request.buffer, request.byteOffset + done, length);
        const bytes = readSync(request.fd, target, 0, length, request.offset + done);
        if (bytes === 0) break;
        done += bytes;
      }
      return done;
    }
  }
}

function found(stats: BigIntStats): FoundFile {
  return {
    size: Number(stats.size),
    mtimeNs: stats.mtimeNs,
    inode: stats.ino,
    device: stats.dev,
    kind: stats.isFile() ? "file" : stats.isDirectory() ? "folder" : "other",
  };
}

/** Plain files below `folder`, in byte order of their paths. Links are followed; hidden names are left out. */
function namesBelow(folder: string, filter?: NameFilter): string[] {
  const names: string[] = [];
  // Folders on the way down, by device and inode: a link to one of them would never end.
  const above = new Set<string>();
  const walk = (relative: string): void => {
    const path = relative === "" ? folder : `${folder}/${relative}`;
    const { dev, ino } = statSync(path, { bigint: true });
    const identity = `${dev}:${ino}`;
    if (above.has(identity)) return;
    above.add(identity);
    for (const entry of readdirSync(path, { withFileTypes: true })) {
      if (entry.name.startsWith(".")) continue;
      const child = relative === "" ? entry.name : `${relative}/${entry.name}`;
      const isFile = filter === undefined || filter.files.test(child);
      const isFolder = filter === undefined || filter.folders.test(child);
      if (!isFile && !isFolder) continue;
      const kind = kindOf(entry, `${folder}/${child}`, isFile);
      if (kind === "folder" && isFolder) walk(child);
      else if (kind === "file" && isFile) names.push(child);
    }
    above.delete(identity);
  };
  walk("");
  return names
    .map((name) => ({ name, bytes: Buffer.from(name) }))
    .sort((a, b) => Buffer.compare(a.bytes, b.bytes))
    .map(({ name }) => name);
}

/** `wanted`: a link that leads nowhere throws with its path, because a shard that is missing is never passed over in silence. */
function kindOf(entry: Dirent, path: string, wanted: boolean): FoundFile["kind"] {
  if (entry.isFile()) return "file";
  if (entry.isDirectory()) return "folder";
  if (!entry.isSymbolicLink()) return "other";
  try {
    return found(statSync(path, { bigint: true })).kind;
  } catch (error) {
    const leadsNowhere = LEADS_NOWHERE.has((error as NodeJS.ErrnoException).code ?? "");
    if (wanted || !leadsNowhere) throw error;
    return "other";
  }
}

const LEADS_NOWHERE: ReadonlySet<string> = new Set(["ENOENT", "ENOTDIR", "ELOOP"]);
