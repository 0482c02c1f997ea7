/**
 * File thread: whole operations on files of a data mount, one after the other, so that a lost mount blocks this thread and never the main
 * one. `files.ts` is its other end; `storage/` only reads.
 *
 * Contract: `copy` never shows a file under its name that is not whole: it writes to a hidden name (`isTemporary`), fsyncs, reads back and
 * compares, renames. The CRC is that of the source as it was read; what is read back comes past the page cache where the file system has
 * direct reads. A kill leaves at most the hidden name, which `sweep` takes away. Pauses for the bandwidth are slept here.
 */
import { spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import {
  appendFileSync,
  closeSync,
  constants,
  fchmodSync,
  fchownSync,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  futimesSync,
  mkdirSync,
  openSync,
  readFileSync,
  readSync,
  readdirSync,
  renameSync,
  statSync,
  statfsSync,
  unlinkSync,
  writeSync,
} from "node:fs";
import type { BigIntStats } from "node:fs";
import { basename, dirname, join, relative } from "node:path";
import { parentPort } from "node:worker_threads";
import { isTemporary } from "../base/atomic-write.ts";
import { Bucket } from "../base/bucket.ts";
import { errnoName } from "../base/errno.ts";
import { TABLE_BYTES, type Kernels } from "../kernels/kernels.ts";
import { createKernels } from "../kernels/load.ts";

export interface Found {
  folder: boolean;
  size: number;
  mtimeNs: bigint;
  /** Empty blocks though there are bytes: released to an archive, or a hole. */
  empty: boolean;
  uid: number;
  gid: number;
}

/** What tells two contents of one path apart. */
export interface Version {
  size: number;
  mtimeNs: bigint;
}

export type FileRequest =
  /** Undefined: nothing is there. */
  | { op: "look"; path: string }
  /** A small file; undefined: nothing is there. */
  | { op: "text"; path: string }
  /** Makes the folder and those above it that are missing, durably; with mode and, as root, owner of `like` and of those above that. */
  | { op: "folder"; path: string; like: string }
  /** Appends and makes it durable; `cut`: behind so many bytes. */
  | { op: "append"; path: string; text: string; cut?: number }
  | { op: "remove"; path: string }
  /** Names in a folder, hidden ones too. */
  | { op: "names"; path: string }
  /** Takes away what a killed copy left in this folder. */
  | { op: "sweep"; path: string }
  /** Makes renames in a folder durable. */
  | { op: "sync"; path: string }
  | { op: "space"; path: string }
  /** `bandwidth`: bytes a second that are read, of the source and then of the copy; none: without limit. */
  | { op: "copy"; from: string; to: string; expected: Version; bandwidth?: number | undefined; refuseEmpty?: boolean }
  /** Reads all of a file. */
  | { op: "sum"; path: string; bandwidth?: number | undefined };

export interface Sum {
  size: number;
  crc32c: number;
  /** Read past the page cache. */
  direct: boolean;
}

export interface Copied extends Sum {
  /** That of the copy; another one than the source's where the file system does not take it. */
  mtimeNs: bigint;
}

export interface FileResults {
  look: Found | undefined;
  text: string | undefined;
  folder: undefined;
  append: undefined;
  remove: undefined;
  names: string[];
  sweep: undefined;
  sync: undefined;
  /** Bytes and files that this user may still write. */
  space: { bytes: number; files: number };
  copy: Copied;
  sum: Sum;
}

/** `CHANGED`, `EMPTY` and `DIFFERS` are ours, other codes those of the system. `path`: what it is about. */
export interface FileFault {
  code: string;
  message: string;
  path: string;
  /** While something was written. */
  writing: boolean;
}

export type FileReply = { done: number } | { value: FileResults[keyof FileResults] } | { fault: FileFault };

/** Reads from 8 MiB on go direct on Lustre 2.17 and leave the cache to others (lustre-real.md). */
const CHUNK = 8 << 20;
/** write() of 4 MiB from a buffer never touched gave EFAULT on Lustre 2.17; 1 MiB never did. */
const WRITE = 1 << 20;
/** What O_DIRECT wants addresses, offsets and lengths to be multiples of, at most. */
const ALIGN = 4096;

class Fault extends Error {
  readonly code: string;
  readonly path: string;
  constructor(code: string, path: string, message: string) {
    super(message);
    this.code = code;
    this.path = path;
  }
}

let kernels: Kernels | undefined;
/** Something is being written, in the call that may fail next. */
let writing = false;
/** Of all files together, and without a burst; undefined: no limit. */
let pace: Bucket | undefined;

export function run(): void {
  const port = parentPort!;
  port.on("message", (request: FileRequest) => {
    writing = false;
    try {
      const value = perform(request, (done) => port.postMessage({ done } satisfies FileReply));
      port.postMessage({ value } satisfies FileReply);
    } catch (error) {
      const { message, path = "" } = error as NodeJS.ErrnoException;
      const code = errnoName(error) ?? "unknown";
      // Nobody knows the hidden name.
      const named = path === "" || isTemporary(basename(path)) ? subjectOf(request) : path;
      port.postMessage({ fault: { code, message, path: named, writing } } satisfies FileReply);
    }
  });
}

function subjectOf(request: FileRequest): string {
  if (request.op !== "copy") return request.path;
  return writing ? request.to : request.from;
}

function perform(request: FileRequest, progress: (done: number) => void): FileResults[keyof FileResults] {
  switch (request.op) {
    case "look":
      return ifThere(() => found(statSync(request.path, { bigint: true })));
    case "text":
      return ifThere(() => readFileSync(request.path, "utf8"));
    case "names":
      return readdirSync(request.path);
    case "folder":
      return written(() => makeFolder(request.path, request.like));
    case "append":
      return written(() => append(request));
    case "remove":
      return written(() => unlinkSync(request.path) as undefined);
    case "sweep":
      for (const name of readdirSync(request.path).filter(isTemporary)) unlinkSync(join(request.path, name));
      return undefined;
    case "sync":
      return syncFolder(request.path);
    case "space": {
      const { bavail, bsize, ffree, files } = statfsSync(request.path);
      // Some file systems count no files.
      return { bytes: bavail * bsize, files: files === 0 ? Infinity : ffree };
    }
    case "copy":
      return copy(request, progress);
    case "sum":
      return sum(request.path, request.bandwidth, progress);
  }
}

/** Not through a link: in a folder of somebody else it could lead anywhere. */
function append({ path, text, cut }: FileRequest & { op: "append" }): undefined {
  const fd = openSync(path, constants.O_WRONLY | constants.O_CREAT | constants.O_APPEND | constants.O_NOFOLLOW, 0o644);
  try {
    if (cut !== undefined) ftruncateSync(fd, cut);
    appendFileSync(fd, text, { flush: true });
  } finally {
    closeSync(fd);
  }
}

function copy(
  { from, to, expected, bandwidth, refuseEmpty }: FileRequest & { op: "copy" },
  progress: (done: number) => void,
): Copied {
  // Not of the file's own name: with it a long one would pass the 255 bytes that a name may have.
  const temporary = join(dirname(to), `.athanor.tmp-${process.pid}-${randomBytes(6).toString("hex")}`);
  const source = openSync(from, "r");
  try {
    const before = fstatSync(source, { bigint: true });
    if (differs(before, expected)) throw changed(from, before, expected);
    if (refuseEmpty === true && found(before).empty) throw new Fault("EMPTY", from, "takes up no space");
    const target = written(() => openSync(temporary, "wx", 0o600));
    try {
      const wrote = fillAndClose(source, target, { from, before, expected, piece: pieceOf(bandwidth), progress });
      const mtimeNs = exactTime(temporary, before.mtimeNs);
      const back = sum(temporary, bandwidth, (done) => progress(wrote.size + done));
      if (back.size !== wrote.size || back.crc32c !== wrote.crc32c)
        throw new Fault("DIFFERS", to, `read back ${sumText(back)}, written ${sumText(wrote)}`);
      written(() => renameSync(temporary, to));
      return { ...back, mtimeNs };
    } catch (error) {
      removeQuietly(temporary);
      throw error;
    }
  } finally {
    closeSync(source);
  }
}

interface Filling {
  from: string;
  /** The source as it was opened, and as it was listed. */
  before: BigIntStats;
  expected: Version;
  piece: number;
  progress: (done: number) => void;
}

/** All bytes of the source, durable, with its mode and times; a source that was another one meanwhile is a fault. */
function fillAndClose(source: number, target: number, filling: Filling): { crc32c: number; size: number } {
  const { from, before, expected, piece, progress } = filling;
  try {
    const wrote = fillTarget(source, target, from, piece, progress);
    const now = [fstatSync(source, { bigint: true }), statSync(from, { bigint: true })];
    const other = now.find((each) => differs(each, expected) || each.ino !== before.ino);
    if (other !== undefined) throw changed(from, other, expected);
    if (wrote.size !== expected.size)
      throw changed(from, { size: BigInt(wrote.size), mtimeNs: before.mtimeNs }, expected);
    written(() => {
      // Bytes first: those that are written back later may set another mtime.
      fsyncSync(target);
      giveOwner(target, before);
      fchmodSync(target, Number(before.mode) & 0o777);
      futimesSync(target, seconds(before.atimeNs), seconds(before.mtimeNs));
      fsyncSync(target);
    });
    return wrote;
  } finally {
    // Before it is read back: NFS brings what it kept to the server at the close.
    closeSync(target);
  }
}

/** Copies bytes until the source ends. */
function fillTarget(
  source: number,
  target: number,
  from: string,
  piece: number,
  progress: (done: number) => void,
): { crc32c: number; size: number } {
  const { at, bytes } = buffer();
  let crc32c = 0;
  let size = 0;
  for (;;) {
    const length = fill(source, bytes.subarray(0, piece), size, from);
    if (length === 0) return { crc32c, size };
    spend(length);
    crc32c = kernels!.crc32c(at, length, crc32c);
    written(() => {
      for (let done = 0; done < length;)
        done += writeSync(target, bytes, done, Math.min(WRITE, length - done), size + done);
    });
    size += length;
    progress(size);
  }
}

function sum(path: string, bandwidth: number | undefined, progress: (done: number) => void): Sum {
  const piece = pieceOf(bandwidth);
  const direct = attemptDirect(path);
  const fd = direct ?? openSync(path, "r");
  try {
    const { at, bytes } = buffer();
    let crc32c = 0;
    let size = 0;
    for (;;) {
      const length = fill(fd, bytes.subarray(0, piece), size, path);
      spend(length);
      if (length > 0) crc32c = kernels!.crc32c(at, length, crc32c);
      size += length;
      progress(size);
      if (length < piece) return { size, crc32c, direct: direct !== undefined };
    }
  } finally {
    closeSync(fd);
  }
}

/** A descriptor that reads past the cache; undefined where the file system has none (tmpfs, some FUSE). */
function attemptDirect(path: string): number | undefined {
  let fd: number | undefined;
  try {
    fd = openSync(path, constants.O_RDONLY | constants.O_DIRECT);
    readSync(fd, buffer().bytes, 0, ALIGN, 0);
    return fd;
  } catch {
    if (fd !== undefined) closeSync(fd);
    return undefined;
  }
}

/** As much as there is, up to the length of `target`. */
function fill(fd: number, target: Uint8Array, offset: number, path: string): number {
  let done = 0;
  while (done < target.length) {
    let bytes: number;
    try {
      bytes = readSync(fd, target, done, target.length - done, offset + done);
    } catch (error) {
      throw Object.assign(error as Error, { path });
    }
    if (bytes === 0) break;
    done += bytes;
    // The end of a file that is read past the cache: what follows would begin between two blocks.
    if (done % ALIGN !== 0) break;
  }
  return done;
}

/** Memory of the kernels: what lies there is summed in place, and begins at a page as direct reads want it. */
function buffer(): { at: number; bytes: Uint8Array } {
  kernels ??= createKernels(CHUNK + ALIGN);
  const at = Math.ceil((kernels.tables + TABLE_BYTES) / ALIGN) * ALIGN;
  return { at, bytes: new Uint8Array(kernels.memory.buffer, at, CHUNK) };
}

/** A quarter of a second's worth at most, so that a limit is kept from second to second. Sets the pace. */
function pieceOf(bandwidth = Infinity): number {
  if (bandwidth !== (pace?.perSecond ?? Infinity))
    pace = Number.isFinite(bandwidth) ? new Bucket(bandwidth, 0) : undefined;
  return Math.max(16 * ALIGN, Math.min(CHUNK, Math.floor(bandwidth / 4 / ALIGN) * ALIGN));
}

/** Node sets times as fractions of a second, which hold some 240 ns; `touch` sets them to the nanosecond. */
function exactTime(path: string, mtimeNs: bigint): bigint {
  const now = statSync(path, { bigint: true }).mtimeNs;
  if (now === mtimeNs) return now;
  const time = `@${mtimeNs / 1_000_000_000n}.${String(mtimeNs % 1_000_000_000n).padStart(9, "0")}`;
  spawnSync("touch", ["-m", "-d", time, "--", path], { stdio: "ignore" });
  return statSync(path, { bigint: true }).mtimeNs;
}

/** Sleeps until these bytes may go. */
function spend(count: number): void {
  if (pace === undefined) return;
  const waitMs = (-pace.there() / pace.perSecond) * 1000;
  if (waitMs > 0) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, waitMs);
  pace.take(count);
}

/** As `makeFolders`, but within this thread: a mkdir that hangs in libuv's pool would keep the process from ending. */
function makeFolder(path: string, like: string): undefined {
  const missing: string[] = [];
  for (let folder = path; ifThere(() => statSync(folder)) === undefined; folder = dirname(folder))
    missing.unshift(folder);
  for (const folder of missing) {
    try {
      // Nobody else looks in before it is known who may.
      mkdirSync(folder, 0o700);
      makeLike(folder, statSync(join(like, relative(path, folder)), { bigint: true }));
    } catch (error) {
      // Somebody else makes it at the same time.
      const isThere = ifThere(() => statSync(folder).isDirectory());
      if ((error as NodeJS.ErrnoException).code !== "EEXIST" || isThere !== true) throw error;
    }
    syncFolder(dirname(folder));
  }
}

/** Its owner can always write to it: files follow. Group and other bits that the folder above gives on (setgid) stay. */
function makeLike(folder: string, model: BigIntStats): void {
  const fd = openSync(folder, "r");
  try {
    giveOwner(fd, model);
    const own = Number(fstatSync(fd, { bigint: true }).mode) & 0o7000;
    fchmodSync(fd, own | (Number(model.mode) & 0o777) | 0o700);
  } finally {
    closeSync(fd);
  }
}

function syncFolder(path: string): undefined {
  const fd = openSync(path, "r");
  try {
    fsyncSync(fd);
  } catch {
    // Some network file systems refuse fsync of a folder; the renames themselves are done then.
  } finally {
    closeSync(fd);
  }
}

function written<Result>(work: () => Result): Result {
  writing = true;
  const result = work();
  writing = false;
  return result;
}

/** What root copies stays its user's: a shard of mode 0600 could not be read any more. */
function giveOwner(fd: number, { uid, gid }: BigIntStats): void {
  if (process.geteuid?.() !== 0) return;
  try {
    fchownSync(fd, Number(uid), Number(gid));
  } catch {
    // root is nobody there
  }
}

/** What went wrong before says more. */
function removeQuietly(path: string): void {
  try {
    unlinkSync(path);
  } catch {
    // the next run sweeps it
  }
}

function ifThere<Result>(work: () => Result): Result | undefined {
  try {
    return work();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

function found(stats: BigIntStats): Found {
  const size = Number(stats.size);
  return {
    folder: stats.isDirectory(),
    size,
    mtimeNs: stats.mtimeNs,
    empty: stats.blocks <= 1n && size > 4096,
    uid: Number(stats.uid),
    gid: Number(stats.gid),
  };
}

function differs({ size, mtimeNs }: { size: bigint; mtimeNs: bigint }, expected: Version): boolean {
  return Number(size) !== expected.size || mtimeNs !== expected.mtimeNs;
}

function changed(path: string, now: { size: bigint; mtimeNs: bigint }, expected: Version): Fault {
  const text = ({ size, mtimeNs }: { size: bigint | number; mtimeNs: bigint }): string =>
    `${size} bytes of ${mtimeNs} ns`;
  return new Fault("CHANGED", path, `found ${text(now)}, expected ${text(expected)}`);
}

const seconds = (ns: bigint): number => Number(ns) / 1e9;

function sumText({ size, crc32c }: { size: number; crc32c: number }): string {
  return `${size} bytes of CRC32C ${crc32c.toString(16).padStart(8, "0")}`;
}
