/**
 * Word cache: ids of words seen before, as most words of a text are. Bounded: two generations of at most 65 536 words and 1 MiB of ids
 * each; a full one makes the older one go, so that words that are still met stay.
 */

const WORDS = 65_536;
const IDS = 262_144;
/** Longer words are hardly met twice: UTF-16 code units. */
export const CACHED_LENGTH = 64;
/** A place is `start × 1024 + count`: a cached word has at most 3 ids a code unit. */
const COUNTS = 1024;

interface Generation {
  places: Map<string, number>;
  ids: Int32Array;
  used: number;
}

export class WordCache {
  /** Of the last `find`: its ids are `ids[from, from + count)`. */
  ids: Int32Array;
  from = 0;
  count = 0;
  private young: Generation = fresh();
  private old: Generation = fresh();

  constructor() {
    this.ids = this.young.ids;
  }

  find(word: string): boolean {
    const place = this.young.places.get(word);
    if (place !== undefined) {
      this.ids = this.young.ids;
      this.from = Math.floor(place / COUNTS);
      this.count = place % COUNTS;
      return true;
    }
    const kept = this.old.places.get(word);
    if (kept === undefined) return false;
    this.ids = this.old.ids;
    this.from = Math.floor(kept / COUNTS);
    this.count = kept % COUNTS;
    const { ids, from, count } = this;
    // `old` may go now: what was found stays readable, `ids` is held here.
    this.add(word, ids.subarray(from, from + count), count);
    return true;
  }

  /** `ids[0, count)` of a word of at most CACHED_LENGTH code units. */
  add(word: string, ids: Int32Array, count: number): void {
    if (this.young.places.size >= WORDS || this.young.used + count > IDS) {
      this.old = this.young;
      this.young = fresh();
    }
    const { young } = this;
    young.ids.set(ids.subarray(0, count), young.used);
    // A slice of a text keeps the whole text alive: a copy of the characters does not.
    young.places.set(owned(word), young.used * COUNTS + count);
    young.used += count;
  }
}

function owned(word: string): string {
  // V8 copies slices below 13 characters anyway.
  return word.length < 13 ? word : Buffer.from(word, "utf16le").toString("utf16le");
}

function fresh(): Generation {
  return { places: new Map(), ids: new Int32Array(IDS), used: 0 };
}
