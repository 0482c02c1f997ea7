/**
 * Handles: descriptors by path, each opened once for all threads and kept while it is among the last used.
 * A lease is taken before the descriptor is there, so that a file asked for twice at once is opened once and
 * never closed under a reader.
 */
import { dirname } from "node:path";
import type { IoPool, IoThread, Targets } from "./io-pool.ts";
import type { OpenedFile } from "./io-thread.ts";

/**
 * Files that an agent keeps open, unless the process may open few. A shard whose extents are read one by one over an epoch is opened once
 * as long as fewer are in use; an open and a close are a question each to the metadata server.
 */
export const HANDLES = 1024;
/** What a process without that many descriptors keeps at least. */
const LEAST = 64;
/** Sockets, memfds and what else a process opens. */
const OTHERS = 512;

/** How many files a process keeps open that may have `limit` descriptors (`RLIMIT_NOFILE`). */
export function handlesFor(limit: number): number {
  return Math.max(LEAST, Math.min(HANDLES, limit - OTHERS));
}

export interface Handle {
  readonly path: string;
  /** Rejects with FaultError. */
  readonly ready: Promise<OpenedFile>;
  leases: number;
  pooled: boolean;
  opened: OpenedFile | undefined;
  /** The thread that opened it and has to close it. */
  thread: IoThread | undefined;
}

/** What a call waits for that asks about a name. */
export function folderTarget(path: string): Targets {
  return { names: [`folder ${dirname(path)}`], known: false };
}

export class HandlePool {
  private readonly pool: IoPool;
  private readonly limit: number;
  /** Least recently used first. */
  private readonly handles = new Map<string, Handle>();
  /** Files opened so far. */
  opens = 0;

  constructor(pool: IoPool, limit: number) {
    this.pool = pool;
    this.limit = limit;
  }

  get size(): number {
    return this.handles.size;
  }

  /** Opens or finds `path`; to be given back once. */
  lease(path: string): Handle {
    const handle = this.handles.get(path) ?? this.open(path);
    handle.leases++;
    this.handles.delete(path);
    this.handles.set(path, handle);
    for (const old of this.handles.values()) {
      if (this.handles.size <= this.limit) break;
      if (old.leases === 0) this.drop(old);
    }
    return handle;
  }

  giveBack(handle: Handle): void {
    handle.leases--;
    this.closeUnused(handle);
  }

  /** Takes a handle out of the pool: the next lease opens the file anew. Closed when its last lease ends. */
  drop(handle: Handle): void {
    if (!handle.pooled) return;
    handle.pooled = false;
    this.handles.delete(handle.path);
    this.closeUnused(handle);
  }

  /** The next use of these files opens them anew. */
  dropWhere(isMeant: (path: string) => boolean): void {
    for (const handle of this.handles.values()) if (isMeant(handle.path)) this.drop(handle);
  }

  private open(path: string): Handle {
    this.opens++;
    // The device is known only after the open; until then the files of one folder count as one target.
    let thread: IoThread | undefined;
    const ready = this.pool.run({ op: "open", path }, folderTarget(path), (taker) => {
      thread = taker;
    });
    const handle: Handle = { path, ready, leases: 0, pooled: true, opened: undefined, thread: undefined };
    ready.then(
      (opened) => {
        handle.thread = thread;
        handle.opened = opened;
        this.closeUnused(handle);
      },
      () => this.drop(handle),
    );
    return handle;
  }

  private closeUnused(handle: Handle): void {
    if (handle.pooled || handle.leases > 0 || handle.opened === undefined) return;
    this.pool.closeIn(handle.thread!, handle.path, handle.opened.fd);
    handle.opened = undefined;
  }
}
