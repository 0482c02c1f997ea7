// Encoders of Parquet's integers for tests, bit by bit.

function varint(value: bigint): number[] {
  const out: number[] = [];
  for (; value > 127n; value >>= 7n) out.push(Number(value & 127n) | 128);
  return [...out, Number(value)];
}

function zigzag(value: bigint): number[] {
  return varint(BigInt.asUintN(64, (value << 1n) ^ (value >> 63n)));
}

/** Little-endian bit fields, padded to whole bytes. */
function fields(values: readonly bigint[], width: number): number[] {
  let all = 0n;
  for (const [i, value] of values.entries()) all |= value << BigInt(i * width);
  return Array.from({ length: Math.ceil((values.length * width) / 8) }, (_, i) =>
    Number((all >> BigInt(8 * i)) & 255n),
  );
}

/** A bit-packed run; the padding of its last group of eight is left out. */
export function bitPacked(values: readonly number[], width: number): number[] {
  const groups = Math.ceil(values.length / 8);
  const out = varint(BigInt(groups * 2 + 1));
  for (let from = 0; from < values.length; from += 8)
    out.push(...fields(values.slice(from, from + 8).map(BigInt), width));
  return out;
}

export function runLength(value: number, times: number, width: number): number[] {
  const bytes = Array.from({ length: Math.ceil(width / 8) }, (_, i) => Math.floor(value / 2 ** (8 * i)) & 255);
  return [...varint(BigInt(times * 2)), ...bytes];
}

/** DELTA_BINARY_PACKED; differences modulo 2^bits. */
export function deltaPacked(values: readonly bigint[], perBlock: number, minis: number, bits: number): Uint8Array {
  const out = [
    ...varint(BigInt(perBlock)),
    ...varint(BigInt(minis)),
    ...varint(BigInt(values.length)),
    ...zigzag(values[0] ?? 0n),
  ];
  const perMini = perBlock / minis;
  for (let from = 1; from < values.length; from += perBlock) {
    const deltas = values
      .slice(from, from + perBlock)
      .map((value, i) => BigInt.asIntN(bits, value - values[from + i - 1]!));
    const least = deltas.reduce((a, b) => (b < a ? b : a));
    const above = deltas.map((delta) => BigInt.asUintN(bits, delta - least));
    out.push(...zigzag(least));
    const groups = Array.from({ length: minis }, (_, m) => above.slice(m * perMini, (m + 1) * perMini));
    const widths = groups.map((group) =>
      Math.max(0, ...group.map((value) => value.toString(2).length * Number(value > 0n))),
    );
    out.push(...widths);
    for (const [m, group] of groups.entries()) {
      if (group.length === 0) continue;
      const padded = [...group, ...Array.from({ length: perMini - group.length }, () => 0n)];
      out.push(...fields(padded, widths[m]!));
    }
  }
  return Uint8Array.from(out);
}
