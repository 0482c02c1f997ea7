/**
 * Memory of one session group: one WebAssembly memory shared by the main thread, the I/O threads (which read
 * into it) and the decode workers (which decode from it and into it). Nothing is copied between threads.
 *
 * ```
 * 0        64 KiB          +128 KiB     +256 KiB                     +raw bytes
 * ┌ unused ┬ kernel tables ┬ plan, staging ┬ raw arena: reads, row tables ┬ row pool: stored rows ┐
 * ```
 * The whole range is reserved at open and touched only as it is used, so resident memory follows use.
 */
import { TABLE_BYTES } from "../kernels/kernels.ts";
import type { Kernels } from "../kernels/kernels.ts";
import { loadKernels } from "../kernels/load.ts";
import { MemoryBudget } from "./errors.ts";
import { formatSize } from "../base/units.ts";

const PAGE = 65536;
const TABLES = PAGE;
const PLAN = TABLES + TABLE_BYTES;
const PLAN_BYTES = 64 * 1024;
const STAGING = PLAN + PLAN_BYTES;
/** Rows are gathered in runs of this many bytes: they stay in the second-level cache until they are copied on. */
export const STAGING_BYTES = 192 * 1024;
const RAW = STAGING + STAGING_BYTES;
/** wasm32: addresses are 32 bits. */
const MAX_PAGES = 65536;
/** An idle memory so many times as large as needed is taken rather than a new one. */
const LARGER = 4;
const LIMIT = 65535 * PAGE;

/**
 * Memories of runs that are over, for the next ones. The collector does not see the weight of a shared memory (its pages
 * stay until every thread has forgotten it, and decode threads hardly ever collect), so none is left to it: a thousand
 * loaders opened one after the other cost the memory of as many as were open at a time. Sizes are powers of two.
 * The kernels over a memory stay with it: each instance leaves some 20 KB of objects and code in the thread that made it,
 * and a thread with a small heap keeps those for minutes.
 */
export class MemoryPool {
  /** The last one given back is at the end. */
  private readonly idle: Kernels[] = [];

  /**
   * Kernels over a memory of at least `bytes`: the smallest idle one that is not needlessly large, of those the last one
   * used (its pages are there already). What it holds behind the tables is of another run.
   */
  acquire(bytes: number): Kernels {
    const pages = Math.min(2 ** Math.ceil(Math.log2(bytes / PAGE)), MAX_PAGES);
    const fits = this.idle.filter(
      (kernels) => sizeOf(kernels) >= pages * PAGE && sizeOf(kernels) <= LARGER * pages * PAGE,
    );
    if (fits.length === 0) return loadKernels({ memory: allocate(pages), tables: TABLES, initTables: true });
    const found = fits.reduce((best, kernels) => (sizeOf(kernels) <= sizeOf(best) ? kernels : best));
    this.idle.splice(this.idle.indexOf(found), 1);
    return found;
  }

  /** Nobody reads or writes it any more. */
  release(kernels: Kernels): void {
    this.idle.push(kernels);
  }
}

function sizeOf({ memory }: Kernels): number {
  return memory.buffer.byteLength;
}

function allocate(pages: number): WebAssembly.Memory {
  try {
    return new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true });
  } catch (error) {
    throw new MemoryBudget(
      `the system refuses ${formatSize(pages * PAGE)} of address space to the agent`,
      {},
      "raise `ulimit -v` (unlimited is best: V8 reserves more than it uses), or lower shuffle_memory",
      error,
    );
  }
}

export class GroupMemory {
  readonly kernels: Kernels;
  readonly memory: WebAssembly.Memory;
  readonly buffer: SharedArrayBuffer;
  readonly bytes: Uint8Array;
  readonly words: Uint32Array;
  readonly tables = TABLES;
  readonly plan = PLAN;
  readonly staging = STAGING;
  readonly raw: RawArena;
  readonly rows: RowPool;
  readonly reserved: number;

  /** @throws MemoryBudget when `rowBytes × rows + rawBytes` passes 4 GiB. */
  constructor(memories: MemoryPool, rowBytes: number, rows: number, rawBytes: number) {
    const pool = RAW + align(rawBytes, 64);
    const end = pool + rowBytes * rows;
    if (end > LIMIT) {
      throw new MemoryBudget(
        `windows need ${formatSize(end)} on this node, one group can have at most ${formatSize(LIMIT)}`,
        {},
        "lower shuffle_memory, or run on more nodes",
      );
    }
    this.kernels = memories.acquire(end);
    this.memory = this.kernels.memory;
    this.buffer = this.memory.buffer as SharedArrayBuffer;
    this.bytes = new Uint8Array(this.buffer);
    this.words = new Uint32Array(this.buffer);
    this.raw = new RawArena(RAW, pool);
    this.rows = new RowPool(pool, rowBytes, rows);
    this.reserved = end;
  }
}

/** First-fit allocator of the raw arena: some tens of live pieces, so a list is enough. */
export class RawArena {
  readonly size: number;
  used = 0;
  private readonly free: { at: number; size: number }[];
  private readonly live = new Map<number, number>();
  private readonly waiters: (() => void)[] = [];

  constructor(from: number, to: number) {
    this.size = to - from;
    this.free = [{ at: from, size: this.size }];
  }

  /** Address of `size` bytes (64-byte aligned), or 0 when there is no room now. */
  alloc(size: number): number {
    const need = align(Math.max(size, 64), 64);
    const slot = this.free.findIndex((piece) => piece.size >= need);
    const piece = this.free[slot];
    if (piece === undefined) return 0;
    const at = piece.at;
    if (piece.size === need) this.free.splice(slot, 1);
    else {
      piece.at += need;
      piece.size -= need;
    }
    this.live.set(at, need);
    this.used += need;
    return at;
  }

  /** Resolves when bytes were given back. */
  room(): Promise<void> {
    return new Promise((resolve) => this.waiters.push(resolve));
  }

  release(at: number): void {
    this.giveBack(at);
    for (const waiter of this.waiters.splice(0)) waiter();
  }

  private giveBack(at: number): void {
    const size = this.live.get(at);
    if (size === undefined) throw new Error(`raw arena: ${at} is not allocated`);
    this.live.delete(at);
    this.used -= size;
    const next = this.free.findIndex((piece) => piece.at > at);
    const index = next < 0 ? this.free.length : next;
    this.free.splice(index, 0, { at, size });
    this.join(index);
    if (index > 0) this.join(index - 1);
  }

  private join(index: number): void {
    const piece = this.free[index];
    const after = this.free[index + 1];
    if (piece === undefined || after === undefined || piece.at + piece.size !== after.at) return;
    piece.size += after.size;
    this.free.splice(index + 1, 1);
  }
}

/** Rows of one size; the last one freed is the next one used, so hot rows stay in the cache. */
export class RowPool {
  readonly rowBytes: number;
  readonly capacity: number;
  private readonly base: number;
  private readonly stack: Uint32Array;
  private depth = 0;
  private fresh = 0;

  constructor(base: number, rowBytes: number, capacity: number) {
    this.base = base;
    this.rowBytes = rowBytes;
    this.capacity = capacity;
    this.stack = new Uint32Array(capacity);
  }

  get available(): number {
    return this.depth + this.capacity - this.fresh;
  }

  get used(): number {
    return this.fresh - this.depth;
  }

  /** Address of a row, or 0 when all are in use. */
  alloc(): number {
    if (this.depth > 0) return this.stack[--this.depth] as number;
    if (this.fresh === this.capacity) return 0;
    return this.base + this.rowBytes * this.fresh++;
  }

  release(row: number): void {
    this.stack[this.depth++] = row;
  }
}

export function align(n: number, to: number): number {
  return Math.ceil(n / to) * to;
}
