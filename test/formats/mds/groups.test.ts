// Which files make up an MDS set: index.json is no data, and a shard that lies there twice is read once.
import assert from "node:assert/strict";
import { test } from "node:test";
import { groupFiles } from "../../../src/formats/groups.ts";
import { splitBeside } from "../../../src/formats/mds/groups.ts";

test("index.json belongs to the shards of its folder, each with the next one", () => {
  const groups = groupFiles(["README.md", "a/index.json", "a/shard.00000.mds", "a/shard.00001.mds.zstd", "b.jsonl"]);
  assert.deepEqual(groups, [
    { path: "README.md", beside: [] },
    { path: "a/shard.00000.mds", beside: ["a/index.json", "a/shard.00001.mds.zstd"] },
    { path: "a/shard.00001.mds.zstd", beside: ["a/index.json", "a/shard.00000.mds"] },
    { path: "b.jsonl", beside: [] },
  ]);
  const [, first] = groups;
  const listing = { file: "a/index.json", next: "a/shard.00001.mds.zstd" };
  assert.deepEqual(splitBeside(first!.path, first!.beside), { parts: [], listing });
  assert.deepEqual(splitBeside("a.bin", ["a.idx"]), { parts: ["a.idx"] });
});

test("the nearest index.json counts; one above it is no data either", () => {
  const groups = groupFiles(["index.json", "x/index.json", "x/s.mds", "y/s.mds"]);
  assert.deepEqual(groups, [
    { path: "x/s.mds", beside: ["x/index.json", "x/s.mds"] },
    { path: "y/s.mds", beside: ["index.json", "y/s.mds"] },
  ]);
  assert.deepEqual(groupFiles(["index.json", "x/index.json", "x/s.mds"]), [groups[0]]);
  assert.deepEqual(groupFiles(["index.json", "t.jsonl"]).length, 2);
});

test("a shard that lies there compressed and not is read once", () => {
  const paths = groupFiles(["s.mds", "s.mds.zstd", "t.mds.zstd"]).map(({ path }) => path);
  assert.deepEqual(paths, ["s.mds", "t.mds.zstd"]);
});
