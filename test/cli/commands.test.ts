import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { gzipSync } from "node:zlib";
import { idRecords, put, shard } from "../dataset/shards.ts";
import { MAIN, athanor } from "./athanor.ts";

const root = mkdtempSync(join(tmpdir(), "athanor-cli-"));
after(() => rmSync(root, { recursive: true, force: true }));
const set = join(root, "set");
put(set, "a.tfrecord", shard(idRecords(0, 100)));
put(set, "b.tfrecord", shard(idRecords(100, 20)));
put(set, "README.md", "# set\n");

test("index, inspect and verify agree, in words and in JSON", () => {
  const scanned = athanor("inspect", set, "--json").lines()[0] as { indexed: boolean; fingerprint: string };
  assert.equal(scanned.indexed, false);
  const first = athanor("index", set, "--json");
  assert.equal(first.code, 0, first.stderr);
  const built = first.lines()[0] as {
    shards: number;
    records: number;
    read: number;
    fingerprint: string;
    ignored: { path: string }[];
  };
  assert.deepEqual([built.shards, built.records, built.read, built.ignored[0]?.path], [2, 120, 2, "README.md"]);
  assert.equal(built.fingerprint, scanned.fingerprint);
  assert.match(athanor("index", set).stdout, /tfrecord, 2 shards \(0 read now\), 120 records/);

  const words = athanor("inspect", set);
  assert.equal(words.code, 0, words.stderr);
  for (const part of [
    /2 shards/,
    /120 records/,
    /id +int64 +120 +1 +1\.0 +0 to 119/,
    /text +bytes/,
    /\{"id":\[0\],"text":\["x+"\]\}/,
    /how it would be read/,
    /no stream: any record can be read/,
    /ignored README\.md/,
  ]) {
    assert.match(words.stdout, part);
  }
  const inspected = athanor("--json", "inspect", set, "--samples", "1").lines()[0] as {
    indexed: boolean;
    samples: unknown[];
    reading: { extents: number; lanes: number };
    totals: { records: number };
  };
  assert.equal(inspected.indexed, true);
  assert.deepEqual(inspected.samples.length, 1);
  assert.deepEqual([inspected.reading.extents, inspected.totals.records], [2, 120]);
  assert.match(athanor("verify", set).stdout, /2 shards, 120 records, .* checked against the index: no problem/);
});

test("cat counts records over the whole set", () => {
  const ids = (range: string): number[] =>
    athanor("cat", set, "--records", range)
      .lines()
      .map((line) => (line as { id: number[] }).id[0]!);
  assert.deepEqual(ids("98:102"), [98, 99, 100, 101]);
  assert.deepEqual(ids(":2"), [0, 1]);
  assert.deepEqual(ids("119:"), [119]);
  assert.deepEqual(ids("120:130"), []);
  assert.equal(athanor("cat", set).lines().length, 120);
});

test("cat of a compressed shard with bytes behind its end, or without its end, gives its records and then the error", () => {
  const records = shard(idRecords(0, 5));
  const whole = gzipSync(records);
  for (const [name, bytes, offset] of [
    ["behind", Buffer.concat([whole, Buffer.from("garbage")]), whole.length - 1],
    ["cut", whole.subarray(0, whole.length - 3), whole.length - 3],
  ] as const) {
    const ran = athanor("cat", put(join(root, name), "a.tfrecord", bytes), "--json");
    assert.deepEqual([ran.code, ran.lines().length], [1, 5], ran.stderr);
    assert.deepEqual([ran.error().code, ran.error().byteOffset], ["ATH_STREAM_CORRUPT", offset], name);
  }
});

test("inspect of a stream of tokens: its records are elements of one value, not lists of up to all of them", () => {
  const header = "{'descr': '<u2', 'fortran_order': False, 'shape': (5000,), }".padEnd(117) + "\n";
  const head = Buffer.concat([Buffer.from("\x93NUMPY\x01\0", "latin1"), Buffer.of(118, 0), Buffer.from(header)]);
  const npy = put(join(root, "npy"), "a.npy", Buffer.concat([head, Buffer.alloc(10_000, 1)]));
  assert.match(athanor("inspect", npy).stdout, /input_ids +int64 +5 000 +1 +1\.0 +257 to 257/);
});

test("verify finds a byte that changed under the same size and mtime, and names every bad record", () => {
  const copy = join(root, "copy");
  const file = put(copy, "a.tfrecord", shard(idRecords(0, 100)));
  put(copy, "b.tfrecord", shard(idRecords(100, 20)));
  put(copy, "c.tfrecord", shard(idRecords(120, 3)));
  execFileSync("touch", ["-d", "2026-01-01", file, join(copy, "c.tfrecord")]);
  assert.equal(athanor("index", copy).code, 0);
  // Other, valid content of the same size and mtime.
  writeFileSync(
    file,
    shard(idRecords(0, 100).map((record, i) => (i === 7 ? { ...record, text: "y".repeat(40) } : record))),
  );
  const broken = readFileSync(join(copy, "c.tfrecord"));
  broken[30]! ^= 1;
  broken[Math.floor(broken.length / 3)]! ^= 1; // the length of record 1: the end of record 0 stands fast
  writeFileSync(join(copy, "c.tfrecord"), broken);
  execFileSync("touch", ["-d", "2026-01-01", file, join(copy, "c.tfrecord")]);
  const ran = athanor("verify", copy, "--json");
  assert.equal(ran.code, 1);
  const report = ran.lines()[0] as { shards: number; problems: { code: string; file: string }[] };
  assert.equal(report.shards, 3);
  assert.deepEqual(
    report.problems.map(({ code }) => code),
    ["ATH_VERIFY_MISMATCH", "ATH_RECORD_CRC", "ATH_RECORD_CRC"],
  );
  assert.equal(ran.error().code, "ATH_VERIFY_MISMATCH");
});

test("index ends with the first bad record, or keeps all as records and names them", () => {
  const bad = join(root, "bad");
  const bytes = shard(idRecords(0, 100));
  const size = bytes.length / 100; // ids below 128 take one byte
  bytes[size * 40 + 30]! ^= 1;
  bytes[size * 70 + 2]! ^= 1;
  put(bad, "a.tfrecord", bytes);
  const refused = athanor("index", bad, "--json");
  assert.equal(refused.code, 1);
  assert.equal(refused.error().code, "ATH_RECORD_CRC");
  const kept = athanor("index", bad, "--on-corrupt", "keep", "--json");
  assert.equal(kept.code, 0);
  const index = kept.lines()[0] as { records: number; bad: { code: string; record: number; byteOffset: number }[] };
  assert.equal(index.records, 100);
  assert.deepEqual(
    index.bad.map(({ code, record, byteOffset }) => [code, record, byteOffset]),
    [40, 70].map((record) => ["ATH_RECORD_CRC", record, size * record]),
  );
  const again = athanor("index", bad, "--rebuild", "--on-corrupt", "keep");
  assert.match(
    again.stderr,
    /a\.tfrecord, record 40, byte \d+: payload CRC32C mismatch.*\n.*record 70.*\n2 bad records kept/,
  );
  assert.equal(athanor("verify", bad).code, 1);
});

test("wrong use exits with 2, a missing path with 3, both as one JSON line when asked", () => {
  for (const args of [
    ["inspct"],
    ["cat"],
    ["cat", set, "--records", "5:2"],
    ["cat", set, "--nope"],
    ["inspect", set, "--samples", "x"],
    ["index", "s3://b/p"],
  ]) {
    const ran = athanor(...args, "--json");
    assert.equal(ran.code, 2, args.join(" "));
    assert.match(ran.error().code, /^ATH_(USAGE|SOURCE_UNSUPPORTED)$/);
    assert.equal(ran.stdout, "");
  }
  const missing = athanor("index", join(root, "nowhere"), "--json");
  assert.equal(missing.code, 3);
  assert.equal(missing.error().code, "ATH_NOT_FOUND");
  assert.ok(!("exit" in missing.error()));
  const words = athanor("cat", join(root, "nowhere"));
  assert.match(words.stderr, /^athanor: .*nowhere: no such file or folder .*\[ATH_NOT_FOUND\]\n$/);
});

test("an empty path is called one: it was taken for the current folder, or named by nothing (`: no such file`)", () => {
  for (const args of [["doctor"], ["index"], ["inspect"], ["layout", "show"], ["plan"], ["state", "show"]]) {
    const ran = athanor(...args, "");
    assert.equal(ran.code, 2, args.join(" "));
    assert.match(ran.stderr, /^athanor: an empty (path|state) was given \(.*\) \[ATH_USAGE\]\n$/, args.join(" "));
  }
  assert.equal(athanor("state", "diff", join(set, "a.json"), "", "--json").error().message, "an empty B was given");
  const folder = athanor("index", set, "--index-dir", "");
  assert.deepEqual([folder.code, /--index-dir is empty/.test(folder.stderr)], [2, true], folder.stderr);
});

test("flags of a view without --view, and a max-length that no loader takes, are refused", () => {
  const refused = (match: RegExp, ...args: string[]): void => {
    const ran = athanor("index", root, ...args, "--json");
    assert.deepEqual([ran.code, ran.error().code], [2, "ATH_USAGE"], args.join(" "));
    assert.match(ran.stderr, match);
  };
  refused(
    /--sample-rule, --tokenizer go with --view|--tokenizer, --sample-rule go with --view/,
    "--tokenizer",
    "/t",
    "--sample-rule",
    "pack",
  );
  refused(/--max-length goes with --view/, "--max-length", "512");
  refused(/16777216/, "--view", "--sample-rule", "pack", "--max-length", "1e9");
});

test("a set of one file is called by its path: it was called by the folder, where others lie", () => {
  const folder = join(root, "one");
  put(folder, "a.tfrecord", shard(idRecords(0, 10)));
  put(folder, "b.tfrecord", shard(idRecords(0, 10)));
  const file = join(folder, "a.tfrecord");
  assert.ok(athanor("index", file).stdout.startsWith(`${file}: tfrecord, 1 shard `));
  assert.ok(athanor("inspect", file).stdout.startsWith(`${file}: tfrecord, 1 shard,`));
  assert.equal(athanor("index", file, "--view", "--sample-rule", "document", "--json").error().file, file);
  assert.equal(athanor("index", folder, "--view", "--sample-rule", "document", "--json").error().file, folder);
});

test("flags that --adopt would pass over are refused: --view counted nothing, without a word", () => {
  for (const flag of [
    ["--view", "--sample-rule", "pack"],
    ["--rebuild"],
    ["--strict-chunks"],
    ["--on-corrupt", "keep"],
  ]) {
    const ran = athanor("index", set, "--adopt", ...flag, "--json");
    assert.deepEqual([ran.code, ran.error().code], [2, "ATH_USAGE"], flag[0]);
    assert.ok(ran.error().message.includes(`${flag[0]} beside --adopt`), ran.error().message);
  }
});

test("help and version are no errors", () => {
  const { version } = JSON.parse(readFileSync(new URL("../../../package.json", import.meta.url), "utf8")) as {
    version: string;
  };
  assert.deepEqual([athanor("--version").code, athanor("--version").stdout], [0, `${version}\n`]);
  const help = athanor("--help");
  assert.equal(help.code, 0);
  for (const command of ["index", "inspect", "verify", "cat"])
    assert.match(help.stdout, new RegExp(`^  ${command} `, "m"));
});

test("a reader that closes the pipe early is no failure", () => {
  const many = join(root, "many");
  put(many, "a.tfrecord", shard(idRecords(0, 20_000, 200)));
  const script = `"$NODE" "$MAIN" cat "$SET" | head -n 1 | wc -l; echo "\${PIPESTATUS[0]}"`;
  const { stdout, stderr } = spawnSync("bash", ["-c", script], {
    encoding: "utf8",
    env: { ...process.env, NODE: process.execPath, MAIN, SET: many },
    timeout: 100_000,
  });
  assert.equal(stdout, "1\n0\n", stderr);
});

test("results that cannot be written are an error that says so", () => {
  const done = spawnSync("bash", ["-c", `"$0" "$1" cat "$2" > /dev/full`, process.execPath, MAIN, set], {
    encoding: "utf8",
  });
  assert.equal(done.status, 3);
  assert.match(done.stderr, /^athanor: the results cannot be written: ENOSPC/m);
});

test("a thread that hangs in the file system does not keep a command that failed from ending", () => {
  const hung = join(root, "hung");
  // Two shards of three blocks: their tables are read at the same time.
  for (const name of ["a", "b"]) put(hung, `${name}.tfrecord`, shard(idRecords(0, 10, 1 << 20)));
  assert.equal(athanor("index", hung).code, 0);
  const blocks = join(hung, ".athanor", "blocks");
  const [one, other] = readdirSync(blocks);
  truncateSync(join(blocks, one!), 10);
  // A pipe without a writer: its open never returns, as on a lost Lustre target.
  rmSync(join(blocks, other!));
  execFileSync("mkfifo", [join(blocks, other!)]);
  const started = performance.now();
  const ran = athanor("inspect", hung, "--json");
  assert.equal(ran.error().code, "ATH_INDEX_CORRUPT");
  // Node joins its threads at exit: only a signal ends it now.
  assert.equal(ran.code, null);
  assert.ok(performance.now() - started < 60_000);
});

test("caps: a command waits for them, says so, and takes them as given", () => {
  const many = join(root, "many");
  for (let k = 0; k < 150; k++) put(many, `${k}.tfrecord`, shard(idRecords(k, 1)));
  // Sizes of 150 files are within the burst of 256, two opens a shard are not.
  const made = athanor("index", many, "--polite", "stats=20");
  assert.equal(made.code, 0, made.stderr);
  assert.doesNotMatch(made.stderr, /waited/);
  const verified = athanor("verify", many, "--polite", "opens=25");
  assert.equal(verified.code, 0, verified.stderr);
  assert.match(verified.stderr, /^\d+ calls waited .* each for the cap of 25 opens a second: --polite off/m);
  assert.match(athanor("verify", many, "--polite", "none").stderr, /--polite must be off, or some of.*ATH_USAGE/);
});
