// `npm run bench:kernels`: the CPU time of each kernel, WebAssembly and twin in turn: of those of column formats millions of values a
// second, of those of records nanoseconds a record. Needs the build.
import { join } from "node:path";

const root = join(import.meta.dirname, "..", "dist");
const { createKernels } = await import(join(root, "src/kernels/load.js"));
const { median } = await import(join(root, "src/bench/statistics.js"));
const { DELTA, TABLE_BYTES } = await import(join(root, "src/kernels/kernels.js"));
const { bitPacked, deltaPacked, runLength } = await import(join(root, "test/kernels/encoders.js"));
const { encodePlan } = await import(join(root, "src/formats/tfrecord/plan.js"));
const { FeatureTable } = await import(join(root, "src/formats/tfrecord/schema.js"));
const { concat, example, frame } = await import(join(root, "test/kernels/examples.js"));

const COUNT = 1 << 16;
const PASSES = 7;
const VOCABULARY = 100_000;
/** Of one pass. */
const CPU_MS = 60;

// Token ids as they are met: most of them small.
let state = 1;
const random = () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 2 ** 32;
const ids = Array.from({ length: COUNT }, () => Math.floor(VOCABULARY * random() ** 4));
const text = (list) => Buffer.from(list.map((value) => `${value},`).join(""));
const mask = ids.map((_, i) => Number(i % 512 < 400));
const words = Int32Array.from({ length: VOCABULARY }, (_, i) => i);

const cases = [
  [
    "dictionary, 17 bits",
    bitPacked(ids, 17),
    (k, at, n, out, w) => k.unpackHybrid(at, n, 17, out, COUNT, w, VOCABULARY),
  ],
  ["bit-packed, 17 bits", bitPacked(ids, 17), (k, at, n, out) => k.unpackHybrid(at, n, 17, out, COUNT, 0, 0)],
  ["runs", runLength(1, COUNT, 1), (k, at, n, out) => k.unpackHybrid(at, n, 1, out, COUNT, 0, 0)],
  [
    "delta, int32",
    deltaPacked(ids.map(BigInt), 128, 4, 32),
    (k, at, n, out) => k.unpackDelta(at, n, out, COUNT, DELTA.int32),
  ],
  [
    "delta, int64",
    deltaPacked(ids.map(BigInt), 128, 4, 64),
    (k, at, n, out) => k.unpackDelta(at, n, out, COUNT, DELTA.narrow),
  ],
  [
    "int64 to int32",
    new Uint8Array(BigInt64Array.from(ids, BigInt).buffer),
    (k, at, _, out) => k.narrowInts(at, COUNT, out),
  ],
  [
    "bytes in planes, int32",
    new Uint8Array(Int32Array.from(ids).buffer),
    (k, at, n, out) => k.unshuffle(at, n, 4, out),
  ],
  ["JSON ids", text(ids), (k, at, n, out) => k.readDigits(at, n, out, COUNT).count === COUNT],
  ["JSON mask", text(mask), (k, at, n, out) => k.readDigits(at, n, out, COUNT).count === COUNT],
];

// Records of a TFRecord file: ids by Zipf's law, and a mask.
const RECORDS = 128;
const LENGTH = 512;
const ROW = 32 + 4 * LENGTH + 8;
const column = { maxLength: LENGTH, pad: "0" };
const plan = encodePlan([
  { ...column, name: "ids", feature: "input_ids", storage: "i32", rowOffset: 32, rowBytes: 4 * LENGTH },
  { ...column, name: "mask", feature: "attention_mask", storage: "prefix", rowOffset: ROW - 8, rowBytes: 8 },
]);
const whole = Array(LENGTH).fill(1n);
const file = concat(
  ...Array.from({ length: RECORDS }, () => {
    const values = Array.from({ length: LENGTH }, () => BigInt(Math.floor(VOCABULARY ** random())));
    return frame(
      example([
        ["input_ids", { kind: "int64", values }],
        ["attention_mask", { kind: "int64", values: whole }],
      ]),
    );
  }),
);

/** Lays the file and what its kernels need into a memory, decoded once; what each kernel does with all records. */
function recordCases(k) {
  const table = Math.ceil((k.tables + TABLE_BYTES) / 64) * 64;
  const offsets = table + 4096;
  const lengths = offsets + 4 * RECORDS;
  const addresses = lengths + 4 * RECORDS;
  const planAt = addresses + 4 * RECORDS;
  const rows = planAt + 1024;
  const gathered = rows + RECORDS * ROW;
  const at = gathered + RECORDS * 4 * LENGTH;
  const memory = new Uint8Array(k.memory.buffer);
  memory.set(plan, planAt);
  memory.set(file, at);
  new Uint32Array(k.memory.buffer, addresses, RECORDS).set(Array.from({ length: RECORDS }, (_, i) => rows + i * ROW));
  const scan = () => k.scanFrames(at, file.length, RECORDS, offsets, lengths, 0).records === RECORDS;
  const decode = (checkCrc) => () =>
    k.decodeExamples({
      raw: at,
      rawBytes: file.length,
      firstRecord: 0,
      records: RECORDS,
      rows: addresses,
      plan: planAt,
      shardKey: 0n,
      checkCrc,
    }).rows === RECORDS;
  scan();
  const [starts, sizes] = [offsets, lengths].map((from) => new Uint32Array(k.memory.buffer, from, RECORDS));
  const features = new FeatureTable({ kernels: k, offsets, lengths, table }, "bench");
  return [
    ["crc32c", () => starts.forEach((start, i) => k.crc32c(at + start, sizes[i]))],
    ["frames and both CRCs", scan],
    ["decodeExamples", decode(false)],
    ["decodeExamples and CRC", decode(true)],
    ["what the index learns", () => features.fold({ base: at, records: RECORDS }, 0, RECORDS)],
    ["gather", () => k.gather(addresses, RECORDS, 32, 4 * LENGTH, gathered)],
  ];
}

/** Runs a microsecond of CPU time. */
function measure(run) {
  if (run() === false) throw new Error("the kernel refused its input");
  const start = process.cpuUsage();
  for (let runs = 1; ; runs++) {
    run();
    const { user, system } = process.cpuUsage(start);
    if (user + system >= CPU_MS * 1000) return runs / (user + system);
  }
}

function columnCase(k, input, call) {
  const base = Math.ceil((k.tables + TABLE_BYTES) / 64) * 64;
  const out = base + 4 * VOCABULARY + 64;
  const at = out + 8 * COUNT;
  new Int32Array(k.memory.buffer, base, VOCABULARY).set(words);
  new Uint8Array(k.memory.buffer).set(input, at);
  return () => {
    const good = call(k, at, input.length, out, base);
    return good !== false && !(good < 0);
  };
}

/** Prints the medians of `figure` of the rates of one case, wasm and twin in turn. */
function compare(name, runs, figure) {
  const found = runs.map(() => []);
  for (let pass = 0; pass < PASSES; pass++) for (const [i, run] of runs.entries()) found[i].push(measure(run));
  const [wasm, twin] = found.map((list) => median(list));
  const cells = [figure(wasm), figure(twin)].map((value) => value.toFixed(0).padStart(6));
  console.log(`${name.padEnd(22)} ${cells.join(" ")} ${(wasm / twin).toFixed(1).padStart(6)}`);
}

const title = (unit) => console.log(`${"".padEnd(22)}   wasm   twin  ratio   (${unit})`);
const memories = () => ["wasm", "twin"].map((name) => createKernels(4 << 20, name));
const pair = memories();
title("million values a second");
for (const [name, input, call] of cases)
  compare(
    name,
    pair.map((k) => columnCase(k, input, call)),
    (rate) => rate * COUNT,
  );
const [wasm, twin] = memories().map(recordCases);
title(`ns a record of ${LENGTH} ids and a mask, ${Math.round(file.length / RECORDS)} bytes`);
for (const [i, [name, run]] of wasm.entries()) compare(name, [run, twin[i][1]], (rate) => 1000 / rate / RECORDS);
