// An archive with a member of every kind, also for damage.
import { gzipSync } from "node:zlib";
import { shardOf, type TestShard } from "../blocks.ts";
import { npy, tar, zip, type Entry } from "./archive.ts";

export const int32 = (...values: number[]): Buffer => Buffer.from(Int32Array.from(values).buffer);

export const entries: Entry[] = [
  { name: "d", type: "5" },
  { name: "d/0.ids.npy", data: npy("<i4", [2, 2], int32(1, 2, 3, 4)) },
  {
    name: "d/0.json",
    data: '{"ids": [1, 9007199254740993], "w": 0.5, "ok": true, "t": "é", "deep": {"a": 1}, "mix": [1, "a"]}',
  },
  { name: "d/0.TXT", data: "grün" },
  { name: "d/0.cls", data: "7" },
  { name: "d/1.ids.npy", data: npy(">i2", [3], Buffer.from([0, 1, 255, 254, 0, 3])) },
  {
    name: "d/1.npz",
    data: zip(
      { "x.npy": npy("<i4", [2], int32(5, 6)), "y.npy": npy("<f8", [1], Buffer.from(Float64Array.of(0.5).buffer)) },
      true,
    ),
  },
  { name: "d/._1.txt", data: "\0\x05" },
  { name: "__meta__", data: "x" },
  { name: "d/1.bin", data: Uint8Array.of(0, 255) },
  { name: "d/2.json", data: "[3, 4]" },
  { name: "d/2.cls", data: "-12" },
  { name: "d/2.ids.npy", data: npy("<i4", [2, 2], int32(1, 2, 3, 4), true), long: "pax" },
  { name: "d/3.ids.npy", data: npy("|u1", [0], Uint8Array.of()), long: "gnu" },
];

export function hostileShards(): TestShard[] {
  const plain = tar(entries);
  const stored = tar([
    { name: "k.npz", data: zip({ "x.npy": npy("<i8", [1], Buffer.alloc(8, 1)) }, false), long: "pax" },
    { name: "l.json", data: JSON.stringify({ a: [1, 2, 3], b: "text", c: [[1], [2]] }) },
  ]);
  return [shardOf("a.tar", plain), shardOf("b.tar.gz", gzipSync(plain)), shardOf("c.tar", stored)];
}
