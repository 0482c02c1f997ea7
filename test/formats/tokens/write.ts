// Shards of tokens in memory, for tests: Megatron pairs and .npy files, written from the descriptions of the formats.
import type { TestShard } from "../blocks.ts";

const CODES: Record<string, number> = { u1: 1, i1: 2, i2: 3, i4: 4, i8: 5, u2: 8 };

/** Little-endian values of a type such as "u2". */
export function pack(values: readonly (number | bigint)[], type: string): Uint8Array {
  const size = Number(type[1]);
  const bytes = new Uint8Array(values.length * size);
  values.forEach((value, i) => {
    let rest = BigInt.asUintN(64, BigInt(value));
    for (let at = 0; at < size; at++, rest >>= 8n) bytes[i * size + at] = Number(rest & 255n);
  });
  return bytes;
}

function joined(...parts: Uint8Array[]): Uint8Array {
  return Uint8Array.from(parts.flatMap((part) => [...part]));
}

/** `cuts`: documents that are stored as two sequences. */
export function pair(
  stem: string,
  documents: readonly (readonly number[])[],
  type: string,
  cuts: readonly number[] = [],
  modes = false,
): TestShard {
  const sequences: (readonly number[])[] = [];
  const borders = [0];
  documents.forEach((document, number) => {
    const middle = document.length >> 1;
    sequences.push(...(cuts.includes(number) ? [document.slice(0, middle), document.slice(middle)] : [document]));
    borders.push(sequences.length);
  });
  const lengths = sequences.map(({ length }) => length);
  let at = 0;
  const pointers = lengths.map((length) => (at += length * Number(type[1])) - length * Number(type[1]));
  const idx = joined(
    new TextEncoder().encode("MMIDIDX\0\0"),
    pack([1], "u8"),
    pack([CODES[type]!], "u1"),
    pack([lengths.length, borders.length], "u8"),
    pack(lengths, "i4"),
    pack(pointers, "i8"),
    pack(borders, "i8"),
    new Uint8Array(modes ? lengths.length : 0),
  );
  const bin = pack(documents.flat(), type);
  return {
    path: `${stem}.bin`,
    files: [
      { path: `${stem}.bin`, bytes: bin },
      { path: `${stem}.idx`, bytes: idx },
    ],
  };
}

/** Version 1.0 of the format. */
export function npyFile(values: readonly (number | bigint)[], type: string, big = false): Uint8Array {
  const order = big ? ">" : "<";
  const header = `{'descr': '${order}${type}', 'fortran_order': False, 'shape': (${values.length},), }`;
  const padded = `${header.padEnd(117)}\n`;
  const size = Number(type[1]);
  const data = pack(values, type);
  if (big) for (let at = 0; at < data.length; at += size) data.subarray(at, at + size).reverse();
  return joined(
    Uint8Array.of(0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0),
    pack([padded.length], "u2"),
    new TextEncoder().encode(padded),
    data,
  );
}
