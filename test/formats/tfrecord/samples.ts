// TFRecord shards for tests of damage: ids, floats, text and empty lists; plain and gzip, small and beyond one stretch of 64.
import { gzipSync } from "node:zlib";
import { concat, example, frame } from "../../kernels/examples.ts";
import { shardOf, type TestShard } from "../blocks.ts";

function shard(records: number, packed: boolean): Uint8Array {
  return concat(
    ...Array.from({ length: records }, (_, i) =>
      frame(
        example([
          ["input_ids", { kind: "int64", values: Array.from({ length: i % 12 }, (_, k) => BigInt(k * i)), packed }],
          ["score", { kind: "float", values: [i / 4] }],
          ["text", { kind: "bytes", values: [new Uint8Array((i * 37) % 50).fill(i)] }],
          ["wide", { kind: "int64", values: [-(2n ** 63n), 2n ** 63n - 1n] }],
        ]),
      ),
    ),
  );
}

export function hostileShards(): TestShard[] {
  return [
    shardOf("a.tfrecord", shard(150, true)),
    shardOf("b.tfrecord", shard(20, false)),
    shardOf("c.tfrecord.gz", gzipSync(shard(40, true))),
  ];
}
