/** Small TFRecord shards for tests: framing of TensorFlow's record_writer.cc, Examples with int64 and bytes lists. */
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { crc32c } from "../../src/base/crc32c.ts";

export type Features = { readonly [name: string]: readonly number[] | string };

export function frame(payload: Uint8Array): Buffer {
  const head = Buffer.alloc(8);
  head.writeBigUInt64LE(BigInt(payload.length));
  return Buffer.concat([head, masked(head), payload, masked(payload)]);
}

export function example(features: Features): Buffer {
  const entries = Object.entries(features).map(([name, value]) => {
    const list =
      typeof value === "string"
        ? field(1, field(1, Buffer.from(value)))
        : field(3, field(1, Buffer.concat(value.map(varint))));
    return field(1, Buffer.concat([field(1, Buffer.from(name)), field(2, list)]));
  });
  return field(1, Buffer.concat(entries));
}

export function shard(records: readonly Features[]): Buffer {
  return Buffer.concat(records.map((features) => frame(example(features))));
}

/** Records { id: [from], text } … of about `bytes` bytes each. */
export function idRecords(from: number, count: number, bytes = 40): Features[] {
  return Array.from({ length: count }, (_, i) => ({ id: [from + i], text: "x".repeat(bytes) }));
}

export function put(root: string, path: string, bytes: Uint8Array | string): string {
  const file = join(root, path);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, bytes);
  return file;
}

function masked(bytes: Uint8Array): Buffer {
  const crc = crc32c(bytes);
  const out = Buffer.alloc(4);
  out.writeUInt32LE((((crc >>> 15) | (crc << 17)) + 0xa282ead8) >>> 0);
  return out;
}

function field(number: number, content: Uint8Array): Buffer {
  return Buffer.concat([varint((number << 3) | 2), varint(content.length), content]);
}

function varint(value: number): Buffer {
  const bytes: number[] = [];
  let rest = value;
  for (; rest > 127; rest = Math.floor(rest / 128)) bytes.push((rest % 128) | 128);
  return Buffer.from([...bytes, rest]);
}
