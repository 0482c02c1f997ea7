// A writer of MDS shards by their public layout, for tests that need what MosaicML's writer does not make.
import type { MdsColumn } from "../../../src/formats/mds/layout.ts";

/** `samples`: the encoded value of each column. */
export function shardBytes(columns: readonly MdsColumn[], samples: readonly (readonly Uint8Array[])[]): Uint8Array {
  const config = Buffer.from(
    JSON.stringify({
      column_encodings: columns.map(({ encoding }) => encoding),
      column_names: columns.map(({ name }) => name),
      column_sizes: columns.map(({ size }) => size),
      compression: null,
      format: "mds",
      hashes: [],
      size_limit: 67108864,
      version: 2,
    }),
  );
  const encoded = samples.map((values) => {
    const sizes = values.filter((_, i) => columns[i]!.size === null).map((value) => value.length);
    return Buffer.concat([Buffer.from(Uint32Array.from(sizes).buffer), ...values]);
  });
  const offsets = new Uint32Array(samples.length + 1);
  offsets[0] = 4 + 4 * offsets.length + config.length;
  for (const [i, { length }] of encoded.entries()) offsets[i + 1] = offsets[i]! + length;
  const count = Buffer.from(Uint32Array.of(samples.length).buffer);
  return Buffer.concat([count, Buffer.from(offsets.buffer), config, ...encoded]);
}
