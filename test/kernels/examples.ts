// Makes TFRecord bytes by hand, also wrong ones. Not the writer of anything that ships.
import {
  STATS_ENTRY,
  STATS_HEADER,
  STATS_MAX,
  STATS_MIN,
  STATS_NAME,
  STATS_NAME_BYTES,
  STATS_PREFIX,
} from "../../src/kernels/assembly/layout.ts";

export type Feature = {
  kind: "int64" | "float" | "bytes" | "none";
  values?: readonly (bigint | number | Uint8Array)[];
  packed?: boolean;
};

export function concat(...parts: readonly Uint8Array[]): Uint8Array {
  const out = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

export function varint(value: bigint): Uint8Array {
  const out: number[] = [];
  let v = BigInt.asUintN(64, value);
  while (v >= 0x80n) {
    out.push(Number(v & 0x7fn) | 0x80);
    v >>= 7n;
  }
  out.push(Number(v));
  return Uint8Array.from(out);
}

export function delimited(field: number, content: Uint8Array): Uint8Array {
  return concat(varint(BigInt((field << 3) | 2)), varint(BigInt(content.length)), content);
}

export function feature({ kind, values = [], packed = true }: Feature): Uint8Array {
  if (kind === "none") return new Uint8Array(0);
  if (kind === "bytes") return delimited(1, concat(...values.map((v) => delimited(1, v as Uint8Array))));
  const field = kind === "float" ? 2 : 3;
  const each = values.map((v) =>
    kind === "float" ? new Uint8Array(Float32Array.of(Number(v)).buffer) : varint(v as bigint),
  );
  if (!packed)
    return delimited(field, concat(...each.map((v) => concat(Uint8Array.of(kind === "float" ? 0x0d : 0x08), v))));
  return delimited(field, values.length === 0 ? new Uint8Array(0) : delimited(1, concat(...each)));
}

/** A map entry; features may repeat a name. */
export function entry(name: string, content: Uint8Array): Uint8Array {
  return delimited(1, concat(delimited(1, new TextEncoder().encode(name)), delimited(2, content)));
}

export function example(features: readonly (readonly [string, Feature])[]): Uint8Array {
  return delimited(1, concat(...features.map(([name, f]) => entry(name, feature(f)))));
}

const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let c = byte;
  for (let bit = 0; bit < 8; bit++) c = c & 1 ? (c >>> 1) ^ 0x82f63b78 : c >>> 1;
  return c;
});

export function crc32c(bytes: Uint8Array): number {
  let c = ~0;
  for (let i = 0; i < bytes.length; i++) c = TABLE[(c ^ bytes[i]!) & 255]! ^ (c >>> 8);
  return ~c >>> 0;
}

export function masked(bytes: Uint8Array): number {
  const c = crc32c(bytes);
  return (((c >>> 15) | (c << 17)) + 0xa282ead8) >>> 0;
}

export function frame(payload: Uint8Array): Uint8Array {
  const out = new Uint8Array(payload.length + 16);
  const view = new DataView(out.buffer);
  view.setBigUint64(0, BigInt(payload.length), true);
  view.setUint32(8, masked(out.subarray(0, 8)), true);
  out.set(payload, 12);
  view.setUint32(12 + payload.length, masked(payload), true);
  return out;
}

/** The table of features into which records are folded (assembly/layout.ts), as it is before the first one. */
export function statsTable(names: readonly string[]): Uint8Array {
  const encoded = names.map((name) => new TextEncoder().encode(name));
  const head = STATS_HEADER + names.length * STATS_ENTRY;
  const view = new DataView(new ArrayBuffer(head));
  view.setUint32(0, names.length, true);
  let nameAt = head;
  encoded.forEach((name, f) => {
    const at = STATS_HEADER + f * STATS_ENTRY;
    view.setUint32(at + STATS_NAME, nameAt, true);
    view.setUint32(at + STATS_NAME_BYTES, name.length, true);
    view.setUint32(at + STATS_PREFIX, 1, true);
    view.setBigInt64(at + STATS_MIN, 2n ** 63n - 1n, true);
    view.setBigInt64(at + STATS_MAX, -(2n ** 63n), true);
    nameAt += name.length;
  });
  return concat(new Uint8Array(view.buffer), ...encoded);
}
