/**
 * Byte-pair encoding of one word: the adjacent pair with the lowest rank is merged, the leftmost of equal ones, until none is
 * left. Short words by looking at all pairs for each merge (they fit the processor's first cache), long ones by a heap:
 * n log n, so that a megabyte without a word border takes a second and not a day.
 *
 * @example
 * const count = new Merger(tables).merge(bytes, length); // ids in `merger.ids`
 */
import { slotOf, wordId } from "./tables.ts";
import type { BpeTables } from "./types.ts";

/** Up to here all pairs are looked at: measured equal at about 60 bytes. */
const SHORT = 48;
/** Working memory that stays allocated: symbols. */
const KEPT = 1 << 16;
const PLACES = 2 ** 31;
const NONE = 0x7fffffff;

export class Merger {
  /** Ids of the last word. */
  ids = new Int32Array(1024);
  private readonly tables: BpeTables;
  private readonly ranks = new Int32Array(SHORT + 1);
  private readonly both = new Int32Array(SHORT + 1);

  constructor(tables: BpeTables) {
    this.tables = tables;
  }

  /** Ids of the word `bytes[0, length)`, in `ids`; returns how many. */
  merge(bytes: Uint8Array, length: number): number {
    const { bytes: single, words } = this.tables;
    if (words !== undefined) {
      const id = wordId(words, bytes, length);
      if (id >= 0) {
        this.ids[0] = id;
        return 1;
      }
    }
    if (this.ids.length < length || (this.ids.length > KEPT && length <= KEPT)) {
      this.ids = new Int32Array(Math.max(length, 1024));
    }
    const { ids } = this;
    let count = 0;
    for (let at = 0; at < length; at++) {
      const id = single[bytes[at]!]!;
      if (id >= 0) ids[count++] = id;
    }
    return count <= SHORT ? this.mergeShort(count) : this.mergeLong(count);
  }

  private mergeShort(symbols: number): number {
    const { ids, ranks, both } = this;
    const { merges } = this.tables;
    let count = symbols;
    for (let at = 0; at + 1 < count; at++) this.look(merges, at);
    while (count > 1) {
      let best = NONE;
      let place = 0;
      for (let at = 0; at < count - 1; at++) {
        if (ranks[at]! < best) {
          best = ranks[at]!;
          place = at;
        }
      }
      if (best === NONE) break;
      ids[place] = both[place]!;
      count--;
      for (let at = place + 1; at < count; at++) {
        ids[at] = ids[at + 1]!;
        ranks[at] = ranks[at + 1]!;
        both[at] = both[at + 1]!;
      }
      if (place > 0) this.look(merges, place - 1);
      if (place < count - 1) this.look(merges, place);
    }
    return count;
  }

  private look(merges: Int32Array, at: number): void {
    const slot = slotOf(merges, this.ids[at]!, this.ids[at + 1]!);
    if (merges[slot] === -1) this.ranks[at] = NONE;
    else {
      this.ranks[at] = merges[slot + 2]!;
      this.both[at] = merges[slot + 3]!;
    }
  }

  private mergeLong(symbols: number): number {
    const { ids } = this;
    const { merges } = this.tables;
    const before = new Int32Array(symbols);
    const behind = new Int32Array(symbols);
    const heap = new MinHeap(symbols);
    const rankAt = (at: number): number => {
      const next = behind[at]!;
      if (next >= symbols) return -1;
      const slot = slotOf(merges, ids[at]!, ids[next]!);
      return merges[slot] === -1 ? -1 : merges[slot + 2]!;
    };
    const offer = (at: number): void => {
      const rank = rankAt(at);
      if (rank >= 0) heap.push(rank * PLACES + at);
    };
    for (let at = 0; at < symbols; at++) {
      before[at] = at - 1;
      behind[at] = at + 1;
    }
    for (let at = 0; at + 1 < symbols; at++) offer(at);
    while (heap.size > 0) {
      const key = heap.pop();
      const rank = Math.floor(key / PLACES);
      const at = key - rank * PLACES;
      // The pair that stands there now may be another one; −1: `at` itself was merged into the symbol before it.
      if (ids[at] === -1 || rankAt(at) !== rank) continue;
      const gone = behind[at]!;
      ids[at] = merges[slotOf(merges, ids[at]!, ids[gone]!) + 3]!;
      ids[gone] = -1;
      const next = behind[gone]!;
      behind[at] = next;
      if (next < symbols) before[next] = at;
      const previous = before[at]!;
      if (previous >= 0) offer(previous);
      offer(at);
    }
    let count = 0;
    for (let at = 0; at < symbols; at = behind[at]!) ids[count++] = ids[at]!;
    return count;
  }
}

/** Binary heap of numbers, the least on top. */
class MinHeap {
  size = 0;
  private keys: Float64Array;

  constructor(room: number) {
    this.keys = new Float64Array(room);
  }

  push(key: number): void {
    if (this.size === this.keys.length) {
      const more = new Float64Array(this.size * 2);
      more.set(this.keys);
      this.keys = more;
    }
    const { keys } = this;
    let at = this.size++;
    while (at > 0) {
      const parent = (at - 1) >>> 1;
      if (keys[parent]! <= key) break;
      keys[at] = keys[parent]!;
      at = parent;
    }
    keys[at] = key;
  }

  pop(): number {
    const { keys } = this;
    const top = keys[0]!;
    const last = keys[--this.size]!;
    const { size } = this;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= size) break;
      if (child + 1 < size && keys[child + 1]! < keys[child]!) child++;
      if (keys[child]! >= last) break;
      keys[at] = keys[child]!;
      at = child;
    }
    keys[at] = last;
    return top;
  }
}
