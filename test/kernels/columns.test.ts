// The kernels of column formats, WebAssembly against the twin: what encoders of the tests write comes back, noise is refused alike, and
// nothing outside the ranges is read or written.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { DELTA, type Kernels, TABLE_BYTES } from "../../src/kernels/kernels.ts";
import { createKernels } from "../../src/kernels/load.ts";
import { bitPacked, deltaPacked, runLength } from "./encoders.ts";

const wasm = createKernels(1 << 20, "wasm");
const twin = createKernels(1 << 20, "twin");

const CANARY = 0xa5;
const INPUT = 64;
const WORDS = 400_000;
const OUTPUT = 500_000;
/** Output is checked this far on both sides. */
const AROUND = 4096;

interface Found<Result> {
  result: Result;
  /** The output, or undefined where the kernel says that it holds anything. */
  bytes: Uint8Array | undefined;
}

/**
 * Runs a kernel over input at an odd address, with `behind` repeated behind it (it must not matter), and `outBytes` of output
 * between canaries.
 */
function run<Result>(
  kernels: Kernels,
  input: Uint8Array,
  behind: number,
  outBytes: number,
  call: (input: number, output: number) => Result,
  good: (result: Result) => boolean,
): Found<Result> {
  const base = kernels.tables + TABLE_BYTES;
  const memory = new Uint8Array(kernels.memory.buffer);
  const at = base + INPUT + (input.length % 8);
  const output = base + OUTPUT;
  memory.fill(behind, base, at + input.length + 256);
  memory.set(input, at);
  memory.fill(CANARY, output - AROUND, output + outBytes + AROUND);
  const result = call(at, output);
  for (let i = 1; i <= AROUND; i++) {
    if (memory[output - i] !== CANARY || memory[output + outBytes + i - 1] !== CANARY) {
      assert.fail(`byte ${i} outside the output was written`);
    }
  }
  assert.deepEqual(memory.slice(at, at + input.length), input, "the input was overwritten");
  return { result, bytes: good(result) ? memory.slice(output, output + outBytes) : undefined };
}

/** By both, whatever lies behind the input: the same. */
function both<Result>(
  input: Uint8Array,
  outBytes: number,
  call: (kernels: Kernels, input: number, output: number) => Result,
  good: (result: Result) => boolean,
): Found<Result> {
  const found = run(wasm, input, 0x31, outBytes, (i, o) => call(wasm, i, o), good);
  assert.deepEqual(
    run(wasm, input, 0xff, outBytes, (i, o) => call(wasm, i, o), good),
    found,
  );
  assert.deepEqual(
    run(twin, input, 0x00, outBytes, (i, o) => call(twin, i, o), good),
    found,
  );
  return found;
}

function hybrid(input: Uint8Array, width: number, count: number, words?: Int32Array): Int32Array | undefined {
  const { bytes } = both(
    input,
    count * 4,
    (kernels, at, out) => {
      const place = kernels.tables + TABLE_BYTES + WORDS;
      if (words !== undefined) new Int32Array(kernels.memory.buffer, place, words.length).set(words);
      return kernels.unpackHybrid(
        at,
        input.length,
        width,
        out,
        count,
        words === undefined ? 0 : place,
        words?.length ?? 0,
      );
    },
    (result) => result,
  );
  return bytes && new Int32Array(bytes.buffer);
}

function delta(input: Uint8Array, count: number, form: number): Uint8Array | undefined {
  return both(
    input,
    count * (form === DELTA.wide ? 8 : 4),
    (kernels, at, out) => kernels.unpackDelta(at, input.length, out, count, form),
    (used) => used >= 0,
  ).bytes;
}

const width = fc.integer({ min: 1, max: 32 });
/** Runs of values of up to 32 bits, to be cut down to the width. */
const runs = fc.array(
  fc.oneof(
    fc.record({ value: fc.nat(0xffffffff), times: fc.integer({ min: 1, max: 700 }) }),
    fc.array(fc.nat(0xffffffff), { minLength: 1, maxLength: 80 }),
    fc.array(fc.nat(0xffffffff), { minLength: 1000, maxLength: 1200 }),
  ),
  { maxLength: 6 },
);

test("runs of any width come back as they were written", () => {
  fc.assert(
    fc.property(width, runs, fc.nat(7), (bits, parts, drop) => {
      const mask = 2 ** bits - 1;
      const bytes: number[] = [];
      const values: number[] = [];
      for (const [i, part] of parts.entries()) {
        const last = i === parts.length - 1;
        if (Array.isArray(part)) {
          const kept = part.map((value) => Number(BigInt(value) & BigInt(mask)));
          // Groups of eight; only the last may be cut.
          const whole = last ? kept : kept.slice(0, kept.length & ~7);
          if (whole.length === 0) continue;
          bytes.push(...bitPacked(whole, bits));
          values.push(...whole);
        } else {
          const value = Number(BigInt(part.value) & BigInt(mask));
          bytes.push(...runLength(value, part.times, bits));
          for (let k = 0; k < part.times; k++) values.push(value);
        }
      }
      const count = Math.max(0, values.length - drop);
      assert.deepEqual(hybrid(Uint8Array.from(bytes), bits, count), Int32Array.from(values.slice(0, count)));
    }),
    { numRuns: 300 },
  );
});

test("indices are looked up; one that is too large is refused", () => {
  fc.assert(
    fc.property(
      fc.array(fc.nat(4095), { minLength: 1, maxLength: 2500 }),
      fc.integer({ min: 1, max: 4096 }),
      (list, size) => {
        const words = Int32Array.from({ length: size }, (_, i) => Math.imul(i, 0x9e3779b1));
        const good = list.every((index) => index < size);
        const expected = good ? Int32Array.from(list, (index) => words[index]!) : undefined;
        assert.deepEqual(hybrid(Uint8Array.from(bitPacked(list, 12)), 12, list.length, words), expected);
        const [first] = list as [number];
        const one = first < size ? new Int32Array(900).fill(words[first]!) : undefined;
        assert.deepEqual(hybrid(Uint8Array.from(runLength(first, 900, 12)), 12, 900, words), one);
      },
    ),
    { numRuns: 200 },
  );
});

test("noise is refused or read by both alike, of runs", () => {
  const words = Int32Array.from({ length: 300 }, (_, i) => i * 7);
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 300 }), width, fc.nat(3000), fc.boolean(), (bytes, bits, count, coded) => {
      hybrid(bytes, bits, count, coded ? words : undefined);
    }),
    { numRuns: 1500 },
  );
});

const int64 = fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n });
const sequence = fc.oneof(
  fc.array(int64, { maxLength: 300 }),
  fc.array(fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 }).map(BigInt), { maxLength: 700 }),
  fc.array(fc.nat(130_000).map(BigInt), { maxLength: 700 }),
  fc.array(fc.integer({ min: 2 ** 31 - 40, max: 2 ** 31 + 40 }).map(BigInt), { maxLength: 200 }),
  fc.record({ from: int64, n: fc.nat(700) }).map(({ from, n }) => Array.from({ length: n }, () => from)),
);

test("delta-packed integers come back, modulo 2^32, narrow where they fit, and wide", () => {
  fc.assert(
    fc.property(
      sequence,
      fc.constantFrom<[number, number]>([128, 4], [128, 1], [8, 1], [256, 8]),
      (values, [block, minis]) => {
        const wide = values.map((value) => BigInt.asIntN(64, value));
        const bytes = deltaPacked(wide, block, minis, 64);
        const found = delta(bytes, wide.length, DELTA.wide);
        assert.deepEqual(found, new Uint8Array(BigInt64Array.from(wide).buffer));
        const fits = wide.every((value) => value === BigInt.asIntN(32, value));
        const narrow = fits ? new Uint8Array(Int32Array.from(wide, Number).buffer) : undefined;
        assert.deepEqual(delta(bytes, wide.length, DELTA.narrow), narrow);
        const low = Int32Array.from(wide, (value) => Number(BigInt.asIntN(32, value)));
        const of32 = deltaPacked(Array.from(low, BigInt), block, minis, 32);
        assert.deepEqual(delta(of32, low.length, DELTA.int32), new Uint8Array(low.buffer));
      },
    ),
    { numRuns: 300 },
  );
});

test("damage is refused or read by both alike, of delta-packed integers", () => {
  fc.assert(
    fc.property(
      fc.array(fc.nat(130_000).map(BigInt), { minLength: 1, maxLength: 400 }),
      fc.array(fc.tuple(fc.nat(), fc.nat(255)), { minLength: 1, maxLength: 4 }),
      fc.nat(60),
      (values, changes, cut) => {
        const bytes = deltaPacked(values, 128, 4, 64);
        for (const [at, byte] of changes) bytes[at % Math.min(bytes.length, 40)] = byte;
        for (const form of Object.values(DELTA))
          delta(bytes.subarray(0, bytes.length - (cut % bytes.length)), values.length, form);
      },
    ),
    { numRuns: 600 },
  );
});

test("64-bit integers are narrowed only where all fit", () => {
  const near = fc.oneof(
    fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 }).map(BigInt),
    fc.constantFrom(2n ** 31n, -(2n ** 31n) - 1n),
  );
  fc.assert(
    fc.property(
      fc.array(fc.oneof({ weight: 40, arbitrary: fc.nat(9).map(BigInt) }, near), { maxLength: 60 }),
      (values) => {
        const input = new Uint8Array(BigInt64Array.from(values).buffer);
        const { bytes } = both(
          input,
          values.length * 4,
          (kernels, at, out) => kernels.narrowInts(at, values.length, out),
          (fits) => fits,
        );
        const fits = values.every((value) => value === BigInt.asIntN(32, value));
        assert.deepEqual(bytes, fits ? new Uint8Array(Int32Array.from(values, Number).buffer) : undefined);
      },
    ),
  );
});

test("bytes in planes are put together, whatever the size of a value and whatever is left over", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 700 }), fc.constantFrom(1, 2, 3, 4, 5, 8, 12, 16), (planes, size) => {
      const { bytes } = both(
        planes,
        planes.length,
        (kernels, at, out) => kernels.unshuffle(at, planes.length, size, out),
        () => true,
      );
      const count = Math.floor(planes.length / size);
      const expected = planes.map((_, i) =>
        i < count * size ? planes[(i % size) * count + Math.floor(i / size)]! : planes[i]!,
      );
      assert.deepEqual(bytes, expected);
    }),
    { numRuns: 400 },
  );
});

function digits(text: string, max: number): { values: number[]; next: number } {
  const input = Uint8Array.from(Buffer.from(text, "latin1"));
  const { result, bytes } = both(
    input,
    max * 4,
    (kernels, at, out) => kernels.readDigits(at, input.length, out, max),
    () => true,
  );
  return { values: [...new Int32Array(bytes!.buffer).subarray(0, result.count)], next: result.next };
}

test("integers of a list are read up to whatever is none", () => {
  const token = fc.oneof(
    { weight: 12, arbitrary: fc.nat(130_000) },
    { weight: 6, arbitrary: fc.nat(1) },
    { weight: 2, arbitrary: fc.integer({ min: -999_999_999, max: 999_999_999 }) },
  );
  const tail = fc.constantFrom(
    "]",
    "7]",
    " 7]",
    "-]",
    "01,5",
    "1.5,2",
    "1e3,",
    "1000000000,1",
    "null,",
    '"a",',
    ",1,",
    "  1,2,",
    "",
    "-0,5]",
  );
  fc.assert(
    fc.property(
      fc.array(token, { maxLength: 400 }),
      fc.constantFrom("", " "),
      tail,
      fc.nat(500),
      (list, space, end, max) => {
        const text = list.map((value) => `${space}${value},`).join("");
        const { values, next } = digits(text + end, max);
        const kept = list.slice(0, max);
        assert.deepEqual(values.slice(0, kept.length), kept);
        if (max <= list.length)
          assert.equal(
            next,
            list
              .slice(0, max)
              .map((value) => `${space}${value},`)
              .join("").length,
          );
        // Only "-0,5]" goes on.
        else assert.deepEqual([values.length - list.length, next - text.length], end === "-0,5]" ? [1, 3] : [0, 0]);
      },
    ),
    { numRuns: 500 },
  );
});

test("lists of one digit, and lists with a space here and there", () => {
  for (const n of [0, 1, 3, 4, 5, 31, 32, 33, 63, 64, 65, 500]) {
    const ones = Array.from({ length: n }, (_, i) => Number(i < n / 2));
    assert.deepEqual(digits(`${ones.join(",")},`, 600).values, n === 0 ? [] : ones);
    const some = Array.from({ length: n }, (_, i) => (i * 7919) % 100_000_000);
    const text = some.map((value, i) => `${i % 3 === 0 ? " " : ""}${value},`).join("");
    assert.deepEqual(digits(text, 600), { values: some, next: text.length });
  }
});

test("noise is read by both alike, of lists", () => {
  const byte = fc.constantFrom(..."0123456789,,,,,,  -]1.e\n[".split(""));
  fc.assert(
    fc.property(fc.array(byte, { maxLength: 400 }), fc.nat(300), (bytes, max) => void digits(bytes.join(""), max)),
    { numRuns: 1500 },
  );
});
