/**
 * Keys of a shard that were seen, in 32 bytes a sample: a key that comes again behind another one would make two samples of one.
 *
 * @example
 * keys.add("a", 0);  // undefined
 * keys.add("a", 10); // 0
 */

export class SeenKeys {
  private table = new Uint32Array(2 * 1024);
  private offsets = new Float64Array(1024);
  private count = 0;

  /** Offset at which the key was seen before; undefined: never. Two keys of equal 64 bits pass for one: once in 10^7 shards of a million. */
  add(key: string, offset: number): number | undefined {
    if (this.count * 2 >= this.offsets.length) this.grow();
    const [low, high] = hash(key);
    return this.put(low, high, offset);
  }

  private put(low: number, high: number, offset: number): number | undefined {
    const mask = this.offsets.length - 1;
    for (let slot = low & mask; ; slot = (slot + 1) & mask) {
      const known = this.table[2 * slot + 1]!;
      if (known === 0) {
        this.table[2 * slot] = low;
        this.table[2 * slot + 1] = high;
        this.offsets[slot] = offset;
        this.count++;
        return undefined;
      }
      if (known === high && this.table[2 * slot] === low) return this.offsets[slot];
    }
  }

  private grow(): void {
    const { table, offsets } = this;
    this.table = new Uint32Array(table.length * 2);
    this.offsets = new Float64Array(offsets.length * 2);
    this.count = 0;
    for (let slot = 0; slot < offsets.length; slot++) {
      if (table[2 * slot + 1] !== 0) this.put(table[2 * slot]!, table[2 * slot + 1]!, offsets[slot]!);
    }
  }
}

/** Two different hashes of 32 bits (FNV-1a, each finished as in MurmurHash3); the second is never 0, which marks a free slot. */
function hash(key: string): [low: number, high: number] {
  let low = 0x811c9dc5;
  let high = 0x9747b28c;
  for (let i = 0; i < key.length; i++) {
    const code = key.charCodeAt(i);
    low = Math.imul(low ^ code, 0x01000193);
    high = Math.imul(high ^ code, 0x85ebca6b) + 0x27d4eb2f;
    high = (high << 13) | (high >>> 19);
  }
  return [finish(low), finish(high) || 1];
}

function finish(hashed: number): number {
  let h = hashed;
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}
