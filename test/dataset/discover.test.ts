import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { discover, folderPattern, globPattern } from "../../src/dataset/discover.ts";
import { createPosixStorage } from "../../src/storage/posix.ts";
import { put } from "./shards.ts";

const root = mkdtempSync(join(tmpdir(), "athanor-discover-"));
const storage = createPosixStorage();
for (const path of ["x/1.tf", "x/2.tf", "x/y/3.tf", "z/[a].tf", ".athanor/shards.bin", "x/.hidden/h.tf"])
  put(root, path, path);
after(async () => {
  await storage.close();
  rmSync(root, { recursive: true, force: true });
});

test("folders, files and globs; the root is the folder given or the longest common one", async () => {
  const all = await discover(root, storage);
  assert.deepEqual(all, {
    root,
    indexDir: join(root, ".athanor"),
    paths: ["x/1.tf", "x/2.tf", "x/y/3.tf", "z/[a].tf"],
    beside: new Map(),
  });
  const file = await discover(join(root, "x/2.tf"), storage);
  assert.deepEqual([file.root, file.paths], [join(root, "x"), ["2.tf"]]);
  const glob = await discover(join(root, "x/**/*.tf"), storage);
  assert.deepEqual([glob.root, glob.paths], [join(root, "x"), ["1.tf", "2.tf", "y/3.tf"]]);
  const deep = await discover(join(root, "*/y/*.tf"), storage);
  assert.deepEqual([deep.root, deep.paths], [join(root, "x/y"), ["3.tf"]]);
  // A name that exists is not a glob.
  assert.deepEqual((await discover(join(root, "z/[a].tf"), storage)).paths, ["[a].tf"]);
  assert.notEqual(file.indexDir, (await discover(join(root, "x/1.tf"), storage)).indexDir);
});

test("what names no shard is a clear error", async () => {
  await assert.rejects(discover(join(root, "nowhere"), storage), { code: "ATH_NOT_FOUND" });
  await assert.rejects(discover(join(root, "*.parquet"), storage), {
    code: "ATH_NO_SHARDS",
    message: /the glob matches no file/,
  });
  await assert.rejects(discover("s3://bucket/prefix", storage), {
    code: "ATH_SOURCE_UNSUPPORTED",
    message: /s3:\/\/ cannot be read yet/,
  });
  mkdirSync(join(root, "none"));
  await assert.rejects(discover(join(root, "none"), storage), { code: "ATH_NO_SHARDS" });
});

test("glob patterns", () => {
  const cases: [glob: string, matches: string[], others: string[]][] = [
    ["*.tf", ["a.tf", ".tf"], ["a.tfx", "b/a.tf", "atf"]],
    ["?.tf", ["a.tf"], ["ab.tf", "/.tf"]],
    ["[0-2].tf", ["0.tf", "2.tf"], ["3.tf", "-.tf"]],
    ["[!0-2].tf", ["3.tf"], ["0.tf", "/.tf"]],
    ["{a,b*}.tf", ["a.tf", "bcd.tf"], ["c.tf", "a,b.tf"]],
    ["**/a", ["a", "b/a", "b/c/a"], ["ba", "a/b"]],
    ["a+(b).tf", ["a+(b).tf"], ["aab.tf"]],
    ["a[b", ["a[b"], ["ab"]],
    ["a,b", ["a,b"], ["a"]],
  ];
  for (const [glob, matches, others] of cases) {
    for (const name of matches) assert.ok(globPattern(glob).test(name), `${glob} should match ${name}`);
    for (const name of others) assert.ok(!globPattern(glob).test(name), `${glob} should not match ${name}`);
  }
});

test("only what a glob matches may fail: a dangling link beside it does not", async () => {
  const set = join(root, "links");
  for (const path of ["a.tf", "in/b.tf"]) put(set, path, path);
  for (const link of ["gone.txt", "in/gone.txt", "lost"]) symlinkSync("/nowhere/at/all", join(set, link));
  symlinkSync("loop", join(set, "in", "loop"));
  for (const [glob, paths] of [
    ["*.tf", ["a.tf"]],
    ["in/*.tf", ["b.tf"]],
    ["{a,in/b}.tf", ["a.tf", "in/b.tf"]],
    ["*/*.tf", ["b.tf"]],
    ["**/*.tf", ["a.tf", "in/b.tf"]],
  ] as const)
    assert.deepEqual((await discover(join(set, glob), storage)).paths, paths, glob);
  symlinkSync("/nowhere/at/all", join(set, "c.tf"));
  for (const source of [join(set, "*.tf"), set])
    await assert.rejects(discover(source, storage), {
      code: "ATH_NOT_FOUND",
      message: /links\/(c\.tf|gone\.txt|lost)/,
    });
});

test("folders that a glob can reach", () => {
  const cases: [glob: string, reached: string[], others: string[]][] = [
    ["*.tf", [], ["x", "a.tf"]],
    ["x/*.tf", ["x"], ["y", "x/y"]],
    ["*/y/*.tf", ["x", "x/y"], ["x/z", "x/y/z"]],
    ["x/**/*.tf", ["x", "x/y", "x/y/z"], ["y"]],
    ["**/a", ["x", "x/y"], []],
    ["x/**", ["x", "x/y"], ["y"]],
    ["{a,b/c}/*.tf", ["a", "b", "b/c"], []],
    ["{a,{b,c}/d}.tf", ["b", "c"], []],
    ["{a,b}/*.tf", ["a", "b"], ["c", "a/b"]],
    ["x[/]y.tf", ["x"], []],
  ];
  for (const [glob, reached, others] of cases) {
    const pattern = folderPattern(glob);
    for (const name of reached) assert.ok(pattern.test(name), `${glob} should look into ${name}`);
    for (const name of others) assert.ok(!pattern.test(name), `${glob} should not look into ${name}`);
  }
});

test("a Zarr folder is one shard, given itself, by its metadata, in a folder or by a glob", async () => {
  const set = join(root, "zarr");
  const array = ["c/0/0", "c/1/0", "zarr.json"];
  for (const name of array) put(set, `a.zarr/${name}`, name);
  for (const name of [".zattrs", ".zgroup", ".hidden", "x/.zarray", "x/0.0"]) put(set, `b.zarr/${name}`, name);
  put(set, "b.zarr-notes", "no part of it");
  put(set, ".zgroup-like/file", "hidden");
  const a = array.map((name) => `a.zarr/${name}`);
  const b = [".zattrs", ".zgroup", "x/.zarray", "x/0.0"].map((name) => `b.zarr/${name}`);
  const whole = await discover(set, storage);
  assert.deepEqual(whole.paths, ["a.zarr", "b.zarr", "b.zarr-notes"]);
  assert.deepEqual(
    [...whole.beside],
    [
      ["a.zarr", a],
      ["b.zarr", b],
    ],
  );
  for (const source of ["b.zarr", "b.zarr/.zgroup", "b.za*"].map((name) => join(set, name))) {
    const one = await discover(source, storage);
    const notes = source.endsWith("*") ? ["b.zarr-notes"] : [];
    assert.deepEqual([one.root, one.paths, [...one.beside]], [set, ["b.zarr", ...notes], [["b.zarr", b]]], source);
    assert.ok(one.indexDir.startsWith(join(set, ".athanor")));
  }
  const both = await discover(join(root, "z*/*.zarr"), storage);
  assert.deepEqual([both.root, both.paths, [...both.beside.values()]], [set, ["a.zarr", "b.zarr"], [a, b]]);
  const inside = await discover(join(set, "a.zarr/c/*/0"), storage);
  assert.deepEqual([inside.paths, inside.beside.size], [["0/0", "1/0"], 0]);
});
