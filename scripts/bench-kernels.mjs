// `npm run bench:kernels`: millions of values a second of CPU time of the kernels of column formats, WebAssembly and twin in turn.
// Needs the build.
import { join } from "node:path";

const root = join(import.meta.dirname, "..", "dist");
const { createKernels } = await import(join(root, "src/kernels/load.js"));
const { median } = await import(join(root, "src/bench/statistics.js"));
const { DELTA, TABLE_BYTES } = await import(join(root, "src/kernels/kernels.js"));
const { bitPacked, deltaPacked, runLength } = await import(join(root, "test/kernels/encoders.js"));

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

function rate(kernels, input, call) {
  const base = Math.ceil((kernels.tables + TABLE_BYTES) / 64) * 64;
  const out = base + 4 * VOCABULARY + 64;
  const at = out + 8 * COUNT;
  new Int32Array(kernels.memory.buffer, base, VOCABULARY).set(words);
  new Uint8Array(kernels.memory.buffer).set(input, at);
  const run = () => {
    const good = call(kernels, at, input.length, out, base);
    if (good === false || good < 0) throw new Error("the kernel refused its input");
  };
  run();
  const start = process.cpuUsage();
  for (let runs = 1; ; runs++) {
    run();
    const { user, system } = process.cpuUsage(start);
    if (user + system >= CPU_MS * 1000) return (runs * COUNT) / (user + system);
  }
}

const both = ["wasm", "twin"].map((name) => createKernels(4 << 20, name));
console.log(`${"".padEnd(22)}   wasm   twin   ratio   (million values a second)`);
for (const [name, input, call] of cases) {
  const found = both.map(() => []);
  for (let pass = 0; pass < PASSES; pass++)
    for (const [i, kernels] of both.entries()) found[i].push(rate(kernels, input, call));
  const [wasm, twin] = found.map((list) => median(list));
  const cells = [wasm.toFixed(0).padStart(6), twin.toFixed(0).padStart(6), (wasm / twin).toFixed(1).padStart(6)];
  console.log(`${name.padEnd(22)} ${cells.join(" ")}`);
}
