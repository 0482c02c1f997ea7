/**
 * POSIX storage: files of any mounted file system, read by I/O threads (`io-pool.ts`).
 *
 * Contract: `Storage` of types.ts. A file is opened once for all threads and its descriptor kept in a pool; the
 * version is checked when it is opened. A read that meets ESTALE, ESHUTDOWN, EIO, ETIMEDOUT or EINTR is tried again
 * over a fresh descriptor, three times in all, and a fourth time where its server is known: one that has evicted this
 * client answers with faults for some seconds. The calling thread makes no file-system call.
 *
 * @example
 * const storage = createPosixStorage();
 * const object = await storage.open("/d/train_000.tfrecord");
 * await object.readInto(new Uint8Array(512), 0);
 * await storage.close();
 */
import { dirname, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { unlessAborted } from "../base/unless-aborted.ts";
import { BOUNCE_BYTES, returnBounce, takeBounce } from "./bounce.ts";
import { NotAFile, RETRIED, changedError, systemError, truncatedError } from "./errors.ts";
import type { SystemFault } from "./errors.ts";
import { HandlePool, folderTarget } from "./handles.ts";
import { FaultError, IoPool, PER_TARGET } from "./io-pool.ts";
import { Troubles } from "./troubles.ts";
import type { Trouble } from "./troubles.ts";
import type { HungRequest, IoPoolStats } from "./io-pool.ts";
import type { Polite } from "./polite.ts";
import type { FoundFile, OpenedFile } from "./io-thread.ts";
import type { ListedObject, NameFilter, ObjectVersion, ReadableObject, Storage } from "./types.ts";

export interface PosixStorageOptions {
  /**
   * I/O threads that work at a time, and one more for each known target that would have none; more help where one read has a long way.
   * @default 4
   */
  threads?: number;
  /** Reads in flight a target; raise it for a file system that wants deep queues. @default 4 */
  perTarget?: number;
  /** Threads in all, those counted that hang in a lost target. @default 64 */
  perNode?: number;
  /** Open files kept. @default 64 */
  handles?: number;
  /** A call older than this is reported to `onHang`, once. Milliseconds. @default 10000 */
  hangAfterMs?: number;
  onHang?: (request: HungRequest) => void;
  /** Caps on opens, stats and listings a second, for a file system that others use too. @default no caps */
  polite?: Polite;
  /**
   * Names the targets (OSTs, servers) that hold bytes [offset, offset + length) of `path`; undefined: not known (yet).
   * @default the device of the file
   */
  targetsOf?: (path: string, offset: number, length: number) => readonly string[] | undefined;
  /**
   * Called before each read of a file that has bytes and takes up no space: one that was moved to an archive, perhaps. Resolves when it
   * may be read; undefined: now.
   */
  whenThere?: (path: string) => Promise<void> | undefined;
  /** What is known of such a target ("switched off"), without asking it. */
  stateOf?: (target: string) => string | undefined;
  /** Pause before the second try; each further one waits four times as long. Milliseconds. @default 250 */
  backoffMs?: number;
}

export interface PosixStorageStats extends IoPoolStats {
  opens: number;
  retries: number;
  handles: number;
  /** Known targets whose last read failed. */
  troubles: Trouble[];
}

/** Storage with what only POSIX has: pooled descriptors, and the watchdog's list. */
export interface PosixStorage extends Storage {
  /**
   * Opens files anew from now on: a descriptor that is kept would go on with a file that another one has taken the name
   * of. Called when a loader opens its data. `sources`: files, folders or globs, those of other data stay open; all without.
   */
  forget(sources?: readonly string[]): void;
  /** Calls that have been running for `forMs` (without it `hangAfterMs`) or longer, the oldest first. */
  hanging(forMs?: number): HungRequest[];
  stats(): PosixStorageStats;
}

/** First try included. */
const TRIES = 3;
const TRIES_OF_KNOWN = 4;
/** More than any file has. */
const ALL_BYTES = 2 ** 52;
/** Calls of a working file system return sooner. */
const PATIENCE_MS = 2000;

export function createPosixStorage(options: PosixStorageOptions = {}): PosixStorage {
  return new Posix(options);
}

class Posix implements PosixStorage {
  private readonly pool: IoPool;
  private readonly handles: HandlePool;
  private readonly backoffMs: number;
  private readonly targetsOf: PosixStorageOptions["targetsOf"];
  private readonly whenThere: PosixStorageOptions["whenThere"];
  private readonly troubles: Troubles;
  private retries = 0;

  constructor(options: PosixStorageOptions) {
    this.pool = new IoPool({
      threads: options.threads ?? 4,
      perTarget: options.perTarget ?? PER_TARGET,
      perNode: options.perNode ?? 64,
      hangAfterMs: options.hangAfterMs ?? 10_000,
      onHang: options.onHang,
      polite: options.polite,
    });
    this.handles = new HandlePool(this.pool, options.handles ?? 64);
    this.backoffMs = options.backoffMs ?? 250;
    this.targetsOf = options.targetsOf;
    this.whenThere = options.whenThere;
    this.troubles = new Troubles(options.stateOf);
  }

  async open(uri: string, expected?: ObjectVersion): Promise<ReadableObject> {
    const file = await this.withFile(uri, expected, 0, expected === undefined, (opened) => Promise.resolve(opened));
    return new PosixObject(this, uri, versionOf(file));
  }

  async list(folder: string): Promise<ListedObject[]> {
    const files = await this.call("list", folder);
    return files.map((file) => ({ path: file.path, version: versionOf(file) }));
  }

  names(folder: string, filter?: NameFilter): Promise<string[]> {
    return this.retry(undefined, () =>
      this.pool.run<"names">({ op: "names", path: folder, ...(filter && { filter }) }, folderTarget(folder)),
    );
  }

  async stat(uri: string): Promise<ObjectVersion & { kind: "file" | "folder" }> {
    const file = await this.call("stat", uri);
    if (file.kind === "other") throw notAFile(uri);
    return { ...versionOf(file), kind: file.kind };
  }

  readShared(
    path: string,
    expected: ObjectVersion | undefined,
    buffer: SharedArrayBuffer,
    byteOffset: number,
    offset: number,
    length: number,
    over?: AbortSignal,
  ): Promise<number> {
    return this.withFile(path, expected, offset, false, async (file) => {
      const there = isEmpty(file) ? this.whenThere?.(path) : undefined;
      if (there !== undefined) await unlessAborted(there, over);
      const known = this.targetsOf?.(path, offset, length);
      const targets = { names: known ?? [`device ${file.device}`], known: known !== undefined };
      const version = expected && { size: expected.size, mtimeNs: expected.mtimeNs };
      const request = { op: "read" as const, path, fd: file.fd, buffer, byteOffset, offset, length };
      const { bytes, changed } = await this.pool.run({ ...request, ...(version && { expected: version }) }, targets);
      if (known !== undefined) this.troubles.fine(known);
      if (bytes < length) throw truncatedError(path, offset, bytes, length);
      if (expected !== undefined && changed !== undefined) throw changedError(path, versionOf(changed), expected);
      return bytes;
    });
  }

  forget(sources?: readonly string[]): void {
    if (sources === undefined) return this.handles.dropWhere(() => true);
    const parts = sources.map((source) => resolve(beforeGlob(source)));
    // Files beside one that is named: half of a pair may be.
    this.handles.dropWhere((path) =>
      parts.some((part) => path === part || path.startsWith(`${part}/`) || dirname(path) === dirname(part)),
    );
  }

  hanging(forMs?: number): HungRequest[] {
    return this.pool.hanging(forMs);
  }

  stats(): PosixStorageStats {
    return {
      ...this.pool.stats(),
      opens: this.handles.opens,
      retries: this.retries,
      handles: this.handles.size,
      troubles: this.troubles.list(),
    };
  }

  close(): Promise<boolean> {
    return this.pool.close(PATIENCE_MS);
  }

  private call<Op extends "stat" | "list">(op: Op, path: string) {
    return this.retry(undefined, () => this.pool.run<Op>({ op, path }, folderTarget(path)));
  }

  /** Runs `work` over an open descriptor of `path`. `fresh`: not over a pooled one. */
  private withFile<Result>(
    path: string,
    expected: ObjectVersion | undefined,
    offset: number,
    fresh: boolean,
    work: (file: OpenedFile) => Promise<Result>,
  ): Promise<Result> {
    const attempt = async (): Promise<Result> => {
      const handle = this.handles.lease(path);
      const pooled = handle.opened !== undefined;
      try {
        const file = await handle.ready;
        if (file.kind !== "file") throw notAFile(path);
        const changed = expected !== undefined && !sameVersion(file, expected);
        if (changed && !pooled) throw changedError(path, versionOf(file), expected);
        if (!changed && !(fresh && pooled)) return await work(file);
        // A pooled descriptor may be of a file that has been replaced since.
        this.handles.drop(handle);
      } catch (error) {
        if (error instanceof FaultError) this.handles.drop(handle);
        throw error;
      } finally {
        this.handles.giveBack(handle);
      }
      return attempt();
    };
    return this.retry(offset, attempt);
  }

  /** Those of the byte that could not be read; of all bytes where a file could not be opened or asked for its size. */
  private targetsOfFault({ path, byteOffset }: SystemFault): readonly string[] | undefined {
    return byteOffset === undefined ? this.targetsOf?.(path, 0, ALL_BYTES) : this.targetsOf?.(path, byteOffset, 1);
  }

  private async retry<Result>(offset: number | undefined, work: () => Promise<Result>): Promise<Result> {
    for (let tries = 1; ; tries++) {
      try {
        return await work();
      } catch (error) {
        if (!(error instanceof FaultError)) throw error;
        const { fault } = error;
        if (!RETRIED.has(fault.code)) throw systemError(fault, offset, tries);
        const targets = this.targetsOfFault(fault);
        if (targets !== undefined) this.troubles.fault(targets, fault.code);
        if (tries === (targets === undefined ? TRIES : TRIES_OF_KNOWN))
          throw systemError(fault, offset, tries, targets && this.troubles.textOf(targets));
        this.retries++;
        await sleep(this.backoffMs * 4 ** (tries - 1));
      }
    }
  }
}

/** An open file. Its descriptor stays in the pool when it is closed: the next reader saves an open. */
class PosixObject implements ReadableObject {
  readonly uri: string;
  readonly version: ObjectVersion;
  private readonly storage: PosixStorage;

  constructor(storage: PosixStorage, uri: string, version: ObjectVersion) {
    this.storage = storage;
    this.uri = uri;
    this.version = version;
  }

  get size(): number {
    return this.version.size;
  }

  async readInto(target: Uint8Array, offset: number): Promise<number> {
    const length = Math.max(0, Math.min(target.byteLength, this.size - offset));
    if (length === 0) return 0;
    if (target.buffer instanceof SharedArrayBuffer) {
      return this.storage.readShared(this.uri, this.version, target.buffer, target.byteOffset, offset, length);
    }
    for (let done = 0; done < length;) {
      const piece = Math.min(length - done, BOUNCE_BYTES);
      const bounce = takeBounce(piece);
      await this.storage.readShared(this.uri, this.version, bounce, 0, offset + done, piece);
      target.set(new Uint8Array(bounce, 0, piece), done);
      returnBounce(bounce);
      done += piece;
    }
    return length;
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}

/** The folder that all matches of a glob lie in, or more; a plain path as it is. */
function beforeGlob(source: string): string {
  const at = source.search(/[*?[{]/);
  return at < 0 ? source : `${source.slice(0, source.lastIndexOf("/", at) + 1)}.`;
}

/** A released file of Lustre has one block, one in a hole of a file system none. */
function isEmpty({ size, blocks }: FoundFile): boolean {
  return blocks <= 1 && size > 4096;
}

function versionOf(file: FoundFile): ObjectVersion {
  return { size: file.size, mtimeNs: file.mtimeNs, inode: file.inode };
}

function sameVersion(found: ObjectVersion, expected: ObjectVersion): boolean {
  return found.size === expected.size && found.mtimeNs === expected.mtimeNs;
}

function notAFile(path: string): Error {
  return new NotAFile("is not a plain file", { file: path }, "give a file, a folder or a glob");
}
