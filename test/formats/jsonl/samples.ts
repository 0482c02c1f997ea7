// JSON files for tests: of lines or an array, with token ids, text, fractions, flags, nulls and nested values.
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { shardOf, type TestShard } from "../blocks.ts";
import { skippableFrame, zstdFrame } from "../codecs/zstd-writer.ts";
import { generator } from "../damage.ts";
import { fixtures } from "../fixtures.ts";

export interface Sample {
  records: Record<string, unknown>[];
  lines: Buffer;
  array: Buffer;
}

export function sample(count: number, seed: number): Sample {
  const random = generator(seed);
  const records = Array.from({ length: count }, (_, i) => {
    const record: Record<string, unknown> = {
      id: i,
      // Long ones are read by the kernel.
      input_ids: Array.from({ length: i % 5 === 4 ? 30 + random(60) : random(12) }, () => random(200000) - 5),
      text: ["", "plain", 'quote " and \\ and \n', "语料 😀 é", "\u2028\u0085\0"][random(5)] + "x".repeat(random(60)),
    };
    if (random(3) === 0) record["score"] = [1, 0.5, -2.25e-7, 1e22, null][random(5)];
    if (random(3) === 0) record["flag"] = random(2) === 0;
    if (random(4) === 0) record["meta"] = { a: [1, { b: null }], c: '}]"' };
    return record;
  });
  const newline = random(2) === 0 ? "\n" : "\r\n";
  return {
    records,
    lines: Buffer.from(records.map((record) => JSON.stringify(record) + newline).join("")),
    array: Buffer.from(JSON.stringify(records, null, random(3))),
  };
}

/** Members of odd sizes, so that their borders lie within records. */
export function gzipMembers(bytes: Buffer, size: number): Buffer {
  const members: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += size) members.push(gzipSync(bytes.subarray(at, at + size)));
  return Buffer.concat(members);
}

/** Frames of odd sizes, each in a group of its own. */
function zstdFrames(bytes: Buffer, size: number): Buffer {
  const frames: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += size)
    frames.push(
      skippableFrame(64 * 1024),
      zstdFrame(bytes.subarray(at, at + size), { block: 700, sized: at % 3 === 0 }),
    );
  return Buffer.concat(frames);
}

/** Small shards of every kind that the format reads. */
export function hostileShards(): TestShard[] {
  const { lines, array } = sample(200, 1);
  return [
    shardOf("a.jsonl", lines),
    shardOf("b.json", array),
    shardOf("c.jsonl.gz", gzipMembers(lines, 5000)),
    shardOf("e.jsonl.zst", readFileSync(`${fixtures}/zstd/records.zst`)),
    shardOf("f.jsonl.zst", zstdFrames(lines, 5000)),
    shardOf("d.jsonl", Buffer.from('{"input_ids":[9007199254740993,2,3],"x":0.25}\n'.repeat(100))),
  ];
}
