// WebDataset shards: how members become samples and columns, what is refused, blocks and spans, damage.
import assert from "node:assert/strict";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { AthanorError } from "../../../src/base/errors.ts";
import { plainValue, type Json } from "../../../src/base/json.ts";
import { detectFormat } from "../../../src/formats/registry.ts";
import type { ScannedBlock } from "../../../src/formats/types.ts";
import { webdataset } from "../../../src/formats/webdataset/format.ts";
import { checkShard, rowOf, scanShard, shardOf } from "../blocks.ts";
import { generator } from "../damage.ts";
import { hostile } from "../hostile.ts";
import { member, npy, pax, tar, type Entry } from "./archive.ts";
import { entries, hostileShards, int32 } from "./samples.ts";

const MUTATIONS = Number(process.env["ATHANOR_HOSTILE"] ?? 300);
const SEED = Number(process.env["ATHANOR_SEED"] ?? 1);

function shown(blocks: readonly ScannedBlock[]): Json[] {
  return blocks.flatMap((block) => Array.from({ length: block.records }, (_, i) => plainValue(block.record!(i))));
}

async function refused(bytes: Uint8Array, name = "a.tar"): Promise<{ error: AthanorError; before: number }> {
  let before = 0;
  const shard = shardOf(name, bytes);
  try {
    const { createKernels } = await import("../../../src/kernels/load.ts");
    const { shardFiles } = await import("../blocks.ts");
    for await (const block of webdataset.scan(await shardFiles(shard), { kernels: createKernels(0) }))
      before += block.records;
  } catch (error) {
    assert.ok(error instanceof AthanorError, String(error));
    return { error, before };
  }
  assert.fail("the shard was read");
}

test("members become columns by the end of their names", async () => {
  const { blocks } = await checkShard(webdataset, shardOf("a.tar", tar(entries)));
  const { fields } = blocks[0]!.columns;
  const rows = (name: string): unknown[] => [0, 1, 2, 3].map((i) => rowOf(fields.get(name), i));
  const text = (value: string): number[] => [...Buffer.from(value)];
  assert.deepEqual(rows("__key__"), ["d/0", "d/1", "d/2", "d/3"].map(text));
  assert.deepEqual(rows("ids"), [[1n, 2n, 3n, 4n], [1n, -2n, 3n], [1n, 3n, 2n, 4n], []]);
  assert.deepEqual(rows("json.ids"), [[1n, 9007199254740993n], null, null, null]);
  assert.deepEqual(rows("json"), [null, null, [3n, 4n], null]);
  assert.deepEqual(rows("json.w"), [[0.5], null, null, null]);
  assert.deepEqual(rows("json.ok"), [[1n], null, null, null]);
  assert.deepEqual(rows("json.t"), [text("é"), null, null, null]);
  assert.deepEqual(rows("txt"), [text("grün"), null, null, null]);
  assert.deepEqual(rows("cls"), [[7n], null, [-12n], null]);
  assert.deepEqual(rows("npz.x"), [null, [5n, 6n], null, null]);
  assert.deepEqual(rows("npz.y"), [null, [0.5], null, null]);
  assert.deepEqual(rows("bin"), [null, [0, 255], null, null]);
  assert.equal(fields.has("json.mix"), false);
  assert.deepEqual(JSON.parse(Buffer.from(rows("json.deep")[0] as number[]).toString()), { a: 1 });
  assert.equal(fields.get("json.deep")!.json, true);
  assert.deepEqual(shown(blocks)[2], {
    __key__: "d/2",
    json: "[3, 4]",
    cls: -12,
    "ids.npy": [
      [1, 3],
      [2, 4],
    ],
  });
});

test("plain and gzip archives are known by content", () => {
  const bytes = tar(entries);
  for (const [name, data, encoding] of [
    ["x", bytes, "plain"],
    ["x.tar.gz", gzipSync(bytes), "gzip"],
    ["y", gzipSync(bytes), "gzip"],
    ["empty.tar", tar([]), "plain"],
  ] as const) {
    const found = detectFormat(data.subarray(0, 4096), name);
    assert.deepEqual([found?.format.name, found?.encoding], ["webdataset", encoding], name);
  }
});

test("an archive of no samples has none", async () => {
  for (const bytes of [tar([]), tar([{ name: "dir/", type: "5" }]), tar([], 512)]) {
    assert.deepEqual((await scanShard(webdataset, shardOf("a.tar", bytes))).blocks, []);
  }
});

test("a gzip stream gives the samples of the plain archive", async () => {
  const plain = await checkShard(webdataset, shardOf("a.tar", tar(entries)));
  const stream = await checkShard(webdataset, shardOf("a.tar.gz", gzipSync(tar(entries))));
  assert.deepEqual(shown(stream.blocks), shown(plain.blocks));
  assert.equal(stream.end.encoding, "gzip");
});

test("blocks and restarts: samples of many sizes, one larger than a block, junk between", async () => {
  const random = generator(5);
  const list: Entry[] = [];
  for (let i = 0; i < 700; i++) {
    const size = i === 300 ? 9_000_000 : random(30_000);
    list.push({ name: `s${i}.cls`, data: String(i), binary: i % 7 === 0 });
    if (i % 5 === 0) list.push({ name: `._s${i}.txt`, data: "junk" });
    list.push({ name: `s${i}.${i % 3 === 0 ? "long" : "bin"}`, data: new Uint8Array(size).fill(i), long: "gnu" });
    if (i % 11 === 0) list.push({ name: `folder${i}/`, type: "5" });
  }
  const { blocks } = await checkShard(webdataset, shardOf("b.tar", tar(list)), {}, random);
  assert.ok(blocks.length > 3);
  let record = 0;
  for (const block of blocks) {
    for (let i = 0; i < block.records; i++)
      assert.deepEqual(rowOf(block.columns.fields.get("cls"), i), [BigInt(record++)]);
  }
  assert.equal(record, 700);
});

test("a cut archive: whole samples before, then where it was cut", async () => {
  const bytes = tar(entries);
  const cut = bytes.length - 1024;
  const whole = await refused(bytes.subarray(0, cut));
  assert.deepEqual(
    [whole.error.code, whole.error.where.byteOffset, whole.error.where.record, whole.before],
    ["ATH_RECORD_TRUNCATED", cut, 3, 3],
  );
  assert.match(whole.error.message, /without its end mark/);
  for (const at of [cut - 1, cut - 700, 3000, 700]) {
    const { error } = await refused(bytes.subarray(0, at));
    assert.equal(error.code, "ATH_RECORD_TRUNCATED", String(at));
  }
  assert.equal((await refused(gzipSync(bytes).subarray(0, 300), "a.tar.gz")).error.code, "ATH_STREAM_CORRUPT");
});

test("a header whose checksum does not fit is named by its byte", async () => {
  const bytes = tar([
    { name: "0.txt", data: "a" },
    { name: "1.txt", data: "b" },
  ]);
  bytes[1024]! ^= 1;
  const { error, before } = await refused(bytes);
  assert.deepEqual([error.code, error.where.byteOffset, error.where.record, before], ["ATH_RECORD_CRC", 1024, 0, 0]);
});

test("a key that comes again is named with both places", async () => {
  const { error, before } = await refused(
    tar([{ name: "a.txt", data: "1" }, { name: "b.txt" }, { name: "a.cls", data: "1" }]),
  );
  assert.equal(error.code, "ATH_RECORD_MALFORMED");
  assert.match(error.message, /"a" at byte 1536, .* from its members at byte 0/);
  assert.deepEqual([error.where.record, before], [2, 2]);
});

test("two members of one name, and a member that is no JSON, are faults of their sample", async () => {
  const list: Entry[] = [
    { name: "0.txt", data: "a" },
    { name: "0.TXT", data: "b" },
    { name: "1.json", data: "{" },
    { name: "2.npy", data: "no array" },
    { name: "3.json", data: '{"n": 99999999999999999999}' },
    { name: "4.json", data: '{"n": 4}' },
  ];
  const { blocks } = await checkShard(webdataset, shardOf("a.tar", tar(list)), { onBad: () => undefined });
  const { faults, fields } = blocks[0]!.columns;
  assert.deepEqual(
    [...faults].map(([i, { code }]) => [i, code]),
    [
      [0, "ATH_RECORD_MALFORMED"],
      [1, "ATH_RECORD_MALFORMED"],
      [2, "ATH_RECORD_MALFORMED"],
      [3, "ATH_VALUE_RANGE"],
    ],
  );
  assert.equal(faults.get(1)?.where.byteOffset, 1024 * 2);
  assert.deepEqual(rowOf(fields.get("json.n"), 4), [4n]);
});

test("an array's shape of nothing but digits is refused at once: it was looked at for ever", async () => {
  const bytes = npy("<i4", [1], int32(1));
  bytes.fill("0", bytes.indexOf("(1,") + 1, 128);
  const list: Entry[] = [
    { name: "0.npy", data: bytes },
    { name: "1.npy", data: npy("<i4", [2], int32(1, 2)) },
  ];
  const { blocks } = await checkShard(webdataset, shardOf("a.tar", tar(list)), { onBad: () => undefined });
  const { faults, fields } = blocks[0]!.columns;
  assert.deepEqual(
    [...faults].map(([i, { code }]) => [i, code]),
    [[0, "ATH_RECORD_MALFORMED"]],
  );
  assert.deepEqual(rowOf(fields.get("npy"), 1), [1n, 2n]);
});

test("integers and fractions of one field are floats, text and numbers no column, also blocks later", async () => {
  const filler = (i: number): Entry => ({ name: `${i}.bin`, data: new Uint8Array(5_000_000) });
  const values = [
    { a: [1, 2], b: 1, c: 2 ** 60, d: "x", e: 1 },
    { a: [0.5], b: "text", c: 0.5, d: 7, e: 2 },
    { a: 3, b: 2, c: 1, d: "y", e: 1.0 },
  ];
  const list = values.flatMap((value, i) => [
    { name: `${i}.json`, data: JSON.stringify(value).replace('"e":1}', i === 2 ? '"e":1.0}' : '"e":1}') },
    filler(i),
  ]);
  const shard = shardOf("a.tar", tar(list));
  const { blocks, end } = await checkShard(webdataset, shard);
  assert.equal(blocks.length, 3);
  assert.deepEqual(end.notColumns, {
    "json.b": "holds text and numbers",
    "json.c": "holds integers beyond 2^53 and fractions",
    "json.d": "holds text and numbers",
  });
  const { kinds } = end.meta as { kinds: Record<string, string> };
  assert.deepEqual(kinds, { __key__: "bytes", "json.a": "float", "json.e": "float", bin: "bytes" });
  const { createKernels } = await import("../../../src/kernels/load.ts");
  const { shardFiles } = await import("../blocks.ts");
  const content = await webdataset.index(await shardFiles(shard), { kernels: createKernels(0) });
  assert.deepEqual(
    content.schema.fields.map(({ name, kind }) => `${name} ${kind}`),
    ["__key__ bytes", "bin bytes", "json.a float", "json.e float"],
  );
});

test("joined archives, sparse files and global sizes are refused", async () => {
  const joined = await refused(Buffer.concat([tar([{ name: "0.txt" }]), tar([{ name: "1.txt" }])]));
  assert.deepEqual([joined.error.code, joined.before], ["ATH_RECORD_MALFORMED", 1]);
  assert.match(joined.error.message, /behind the end mark/);
  for (const bytes of [
    tar([{ name: "0.txt", type: "S" }]),
    Buffer.concat([pax({ size: "3" }, "g"), tar([{ name: "0.txt", data: "abc" }])]),
  ]) {
    assert.equal((await refused(bytes)).error.code, "ATH_FORMAT_UNSUPPORTED");
  }
});

test("PAX says name and size; a global header of comments is passed over", async () => {
  const name = "0".repeat(50).concat("/ü".repeat(60), ".txt");
  const big = member({ name: "short.txt", data: "hello" });
  // The size in the header itself says nothing: that of PAX counts.
  big.write("00000000000\0", 124);
  const { summed } = await import("./archive.ts");
  const head = summed(Buffer.from(big.subarray(0, 512)));
  const bytes = Buffer.concat([
    pax({ comment: "x" }, "g"),
    pax({ path: name, size: "5", mtime: "1.5" }),
    head,
    big.subarray(512),
    Buffer.alloc(1024),
  ]);
  const { blocks } = await checkShard(webdataset, shardOf("a.tar", bytes));
  assert.deepEqual(shown(blocks), [{ __key__: name.slice(0, -4), txt: "hello" }]);
});

test("what is no archive is called what it is", async () => {
  const pointer = `version https://git-lfs.github.com/spec/v1\noid sha256:${"0".repeat(64)}\nsize 10\n`;
  const { error } = await refused(Buffer.from(pointer.padEnd(600)));
  assert.equal(error.code, "ATH_NOT_FORMAT");
  assert.match(error.message, /Git LFS/);
  assert.equal((await refused(Buffer.alloc(0))).error.code, "ATH_RECORD_TRUNCATED");
});

test(`${MUTATIONS} damaged shards give values or coded errors`, { timeout: 3_600_000 }, async () => {
  const report = await hostile(webdataset, hostileShards(), MUTATIONS, { seed: SEED });
  assert.equal(report.read + report.refused, MUTATIONS);
  assert.ok(report.refused > MUTATIONS / 10 && report.read > 0, JSON.stringify(report));
});
