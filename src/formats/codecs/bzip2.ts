/**
 * Bzip2, all streams. Those on npm are for whole files (`unbzip2-stream` passes over checksums, `seek-bzip` takes no bound and was
 * last released with a command line in it); of array chunks the size is known and damage is to be seen.
 *
 * Contract: at most `limit` bytes, checksums of blocks checked, or throws an Error that says why.
 *
 * @example
 * bzip2Decompress(bytes, 4096);
 */

const BLOCK_MAGIC = 0x314159265359;
const END_MAGIC = 0x177245385090;
const MOST_CODE_BITS = 20;
/** Symbols between two choices of a table. */
const GROUP = 50;

const CRC = Uint32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte << 24;
  for (let bit = 0; bit < 8; bit++) crc = crc < 0 ? (crc << 1) ^ 0x04c11db7 : crc << 1;
  return crc >>> 0;
});

export function bzip2Decompress(input: Uint8Array, limit: number): Uint8Array {
  const bits = new Bits(input);
  const parts: Uint8Array[] = [];
  let total = 0;
  do {
    if (bits.read(24) !== 0x425a68) throw new Error("no bzip2 stream");
    const level = bits.read(8) - 48;
    if (level < 1 || level > 9) throw new Error("a bzip2 stream of an unknown level");
    for (;;) {
      const magic = bits.read(24) * 0x1000000 + bits.read(24);
      if (magic === END_MAGIC) break;
      if (magic !== BLOCK_MAGIC) throw new Error("a bzip2 block does not begin as one");
      const part = block(bits, level * 100_000, limit - total);
      total += part.length;
      parts.push(part);
    }
    bits.read(24);
    bits.read(8);
    bits.align();
  } while (!bits.done);
  return parts.length === 1 ? parts[0]! : new Uint8Array(Buffer.concat(parts));
}

class Bits {
  private readonly input: Uint8Array;
  private at = 0;
  private held = 0;
  private count = 0;

  constructor(input: Uint8Array) {
    this.input = input;
  }

  get done(): boolean {
    return this.at >= this.input.length;
  }

  /** Up to 24. */
  read(bits: number): number {
    while (this.count < bits) {
      const byte = this.input[this.at++];
      if (byte === undefined) throw new Error("the bzip2 stream is cut");
      this.held = ((this.held << 8) | byte) & 0xffffffff;
      this.count += 8;
    }
    this.count -= bits;
    return (this.held >>> this.count) & ((1 << bits) - 1);
  }

  align(): void {
    this.count = 0;
  }
}

/** A code table: of each length its first code's place in `symbols`. */
interface Table {
  limit: Int32Array;
  base: Int32Array;
  symbols: Uint16Array;
}

function block(bits: Bits, most: number, limit: number): Uint8Array {
  const stored = ((bits.read(16) << 16) | bits.read(16)) >>> 0;
  if (bits.read(1) !== 0) throw new Error("a randomised bzip2 block");
  const origin = bits.read(24);
  const used: number[] = [];
  const map = bits.read(16);
  for (let high = 0; high < 16; high++) {
    if ((map & (0x8000 >> high)) === 0) continue;
    const part = bits.read(16);
    for (let low = 0; low < 16; low++) if ((part & (0x8000 >> low)) !== 0) used.push(high * 16 + low);
  }
  if (used.length === 0) throw new Error("a bzip2 block without symbols");
  const tables = bits.read(3);
  const count = bits.read(15);
  if (tables < 2 || tables > 6 || count === 0) throw new Error("a bzip2 block with wrong code tables");
  const selectors = new Uint8Array(count);
  const order = Array.from({ length: tables }, (_, i) => i);
  for (let i = 0; i < count; i++) {
    let place = 0;
    while (bits.read(1) === 1) if (++place >= tables) throw new Error("a bzip2 selector of no table");
    const [table] = order.splice(place, 1) as [number];
    order.unshift(table);
    selectors[i] = table;
  }
  const codes = Array.from({ length: tables }, () => readTable(bits, used.length + 2));
  return unrun(untransformed(symbolsOf(bits, used, selectors, codes, most), origin), stored, limit);
}

function readTable(bits: Bits, count: number): Table {
  const lengths = new Uint8Array(count);
  let length = bits.read(5);
  for (let i = 0; i < count; i++) {
    for (;;) {
      if (length < 1 || length > MOST_CODE_BITS) throw new Error("a bzip2 code of a wrong length");
      if (bits.read(1) === 0) break;
      length += bits.read(1) === 0 ? 1 : -1;
    }
    lengths[i] = length;
  }
  const limit = new Int32Array(MOST_CODE_BITS + 2).fill(-1);
  const base = new Int32Array(MOST_CODE_BITS + 2);
  const symbols = new Uint16Array(count);
  let code = 0;
  let place = 0;
  for (let bitCount = 1; bitCount <= MOST_CODE_BITS; bitCount++) {
    base[bitCount] = place - code;
    for (let i = 0; i < count; i++) {
      if (lengths[i] !== bitCount) continue;
      symbols[place++] = i;
      code++;
    }
    limit[bitCount] = code - 1;
    code <<= 1;
  }
  return { limit, base, symbols };
}

/** Huffman codes, runs and move-to-front undone. */
function symbolsOf(
  bits: Bits,
  used: number[],
  selectors: Uint8Array,
  codes: readonly Table[],
  most: number,
): Uint8Array {
  const out = new Uint8Array(most);
  const front = Uint8Array.from(used);
  const end = used.length + 1;
  let at = 0;
  let run = 0;
  let weight = 1;
  for (let group = 0; ; group++) {
    if (group >= selectors.length) throw new Error("a bzip2 block has more symbols than its tables");
    const { limit, base, symbols } = codes[selectors[group]!]!;
    for (let left = GROUP; left > 0; left--) {
      let length = 1;
      let code = bits.read(1);
      while (code > limit[length]!) {
        if (++length > MOST_CODE_BITS) throw new Error("a bzip2 code of no symbol");
        code = (code << 1) | bits.read(1);
      }
      const symbol = symbols[base[length]! + code];
      if (symbol === undefined) throw new Error("a bzip2 code of no symbol");
      if (symbol <= 1) {
        run += weight << symbol;
        weight <<= 1;
        if (run > most) throw new Error("a bzip2 run is longer than its block");
        continue;
      }
      if (at + run > most) throw new Error("a bzip2 block is longer than its stream says");
      out.fill(front[0]!, at, at + run);
      at += run;
      [run, weight] = [0, 1];
      if (symbol === end) return out.subarray(0, at);
      if (at >= most) throw new Error("a bzip2 block is longer than its stream says");
      const byte = front[symbol - 1]!;
      front.copyWithin(1, 0, symbol - 1);
      front[0] = byte;
      out[at++] = byte;
    }
  }
}

/** Burrows–Wheeler. */
function untransformed(last: Uint8Array, origin: number): Uint8Array {
  if (origin >= last.length) throw new Error("a bzip2 block begins behind its end");
  const starts = new Uint32Array(257);
  for (const byte of last) starts[byte + 1]!++;
  for (let byte = 0; byte < 256; byte++) starts[byte + 1]! += starts[byte]!;
  const next = new Uint32Array(last.length);
  for (let i = 0; i < last.length; i++) next[starts[last[i]!]!++] = i;
  const out = new Uint8Array(last.length);
  for (let i = 0, at = next[origin]!; i < out.length; i++, at = next[at]!) out[i] = last[at]!;
  return out;
}

/** Four equal bytes are followed by how many more there are. */
function unrun(data: Uint8Array, stored: number, limit: number): Uint8Array {
  let size = 0;
  let same = 0;
  for (let i = 0; i < data.length; i++) {
    if (same === 4) {
      size += data[i]!;
      same = 0;
      continue;
    }
    same = i > 0 && same > 0 && data[i] === data[i - 1] ? same + 1 : 1;
    size++;
  }
  if (size > limit) throw new Error(`more than the ${limit} bytes expected`);
  const out = new Uint8Array(size);
  let at = 0;
  let crc = ~0;
  same = 0;
  for (let i = 0; i < data.length; i++) {
    let count = 1;
    let byte = data[i]!;
    if (same === 4) {
      [count, byte, same] = [byte, data[i - 1]!, 0];
    } else {
      same = same > 0 && byte === data[i - 1] ? same + 1 : 1;
    }
    for (; count > 0; count--) {
      out[at++] = byte;
      crc = (crc << 8) ^ CRC[(crc >>> 24) ^ byte]!;
    }
  }
  if (~crc >>> 0 !== stored) throw new Error("the checksum of a bzip2 block does not fit its bytes");
  return out;
}
