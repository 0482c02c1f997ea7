/**
 * Damaged layouts and damaged outputs of `lfs`: a value or a coded error, whatever the bytes are. Few in `npm test`, many in
 * `npm run test:hostile -- --format lov,getstripe --mutations 100000`. The same seed gives the same damage.
 */
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import fc from "fast-check";
import { AthanorError } from "../../src/base/errors.ts";
import { parseGetstripe } from "../../src/lustre/getstripe.ts";
import { operationsOf, parseCounters, readsOf } from "../../src/lustre/counters.ts";
import { ostAt, spreadOf } from "../../src/lustre/layout.ts";
import type { Layout } from "../../src/lustre/layout.ts";
import { decodeLov } from "../../src/lustre/lov.ts";
import { parseCheck, parseDf, parseOsts, parsePool } from "../../src/lustre/targets.ts";
import { CASE_60, FIXTURES, allHex, recorded, sampled } from "./fixtures.ts";

export interface HostileReport {
  told: number;
  refused: number;
}

/** Runs with the damage of `seed`. */
export type Hostile = (runs: number, seed: number) => HostileReport;

export const hostileLov: Hostile = (runs, seed) => {
  const blobs = allHex().map(({ bytes }) => bytes);
  const change = fc.oneof(
    fc.tuple(fc.nat(400), fc.constant(1 as const), fc.bigInt(0n, 255n)),
    // What fields of two, four and eight bytes are at their borders.
    fc.tuple(
      fc.nat(100).map((word) => word * 2),
      fc.constantFrom(2 as const, 4 as const, 8 as const),
      fc.constantFrom(0n, 1n, 0x7fffn, 0x8000n, 0xffe0n, 0xffffn, 2n ** 31n, 2n ** 32n - 1n, 2n ** 63n, 2n ** 64n - 1n),
    ),
  );
  const mutated = fc
    .tuple(fc.constantFrom(...blobs), fc.array(change, { maxLength: 6 }), fc.option(fc.nat(400)))
    .map(([blob, changes, cut]) => {
      const bytes = blob.slice(0, cut ?? blob.length);
      const view = new DataView(bytes.buffer);
      for (const [at, width, value] of changes) {
        for (let i = 0; i < width && at + i < bytes.length; i++)
          view.setUint8(at + i, Number((value >> BigInt(8 * i)) & 0xffn));
      }
      return bytes;
    });
  const random = fc.uint8Array({ maxLength: 300 });
  const headed = random.map((bytes) => {
    bytes.set(blobs[bytes.length % blobs.length]!.subarray(0, Math.min(4, bytes.length)));
    return bytes;
  });
  return told(fc.oneof(mutated, headed, random), runs, seed, (bytes) => {
    try {
      judge(decodeLov(bytes, "/f"));
      return true;
    } catch (error) {
      assert.ok(isRefusal(error).where.byteOffset! <= bytes.length);
      return false;
    }
  });
};

export const hostileGetstripe: Hostile = (runs, seed) => {
  const folders = [`${FIXTURES}recorded/`, `${FIXTURES}samples/`, CASE_60];
  const texts = folders.flatMap((folder) =>
    readdirSync(folder)
      .filter((name) => /getstripe|plain|pfl|dom|dir|mirror|many|over/.test(name) && /\.(txt|yaml)$/.test(name))
      .map((name) => readFileSync(folder + name, "utf8")),
  );
  return told(mutatedText(texts), runs, seed, (text) => {
    try {
      for (const { layout } of parseGetstripe(text, "/f")) judge(layout);
      return true;
    } catch (error) {
      isRefusal(error);
      return false;
    }
  });
};

/** `lfs osts`, `df`, `check osts`, `pool_list`: these leave out what they do not know. */
export const hostileTargets: Hostile = (runs, seed) => {
  const names = [
    "lfs-osts",
    "lfs-df",
    "fail-inactive-lfs-df",
    "failout-lfs-check.stderr",
    "enospc-lfs-df-v",
    "pool-new",
  ];
  const texts = [...names.map((name) => recorded(`${name}.txt`)), sampled("lfs-df.txt"), sampled("lfs-osts.txt")];
  return told(mutatedText(texts), runs, seed, (text) => {
    const [osts, space, faults] = [parseOsts(text), parseDf(text), parseCheck(text)];
    for (const { total, used, available } of space.values())
      for (const bytes of [total, used, available]) assert.ok(bytes >= 0 && Number.isFinite(bytes), text);
    for (const index of [...osts.keys(), ...space.keys(), ...faults.values()]) assert.ok(Number.isFinite(index), text);
    return osts.size + space.size + faults.size + parsePool(text).length > 0;
  });
};

/** `lctl get_param` of statistics: what is no counter is left out. */
export const hostileCounters: Hostile = (runs, seed) => {
  const names = ["get_param-osc.stats", "get_param-llite.stats", "get_param-mdc.stats", "as-nobody-get_param"];
  return told(mutatedText(names.map((name) => recorded(`${name}.txt`))), runs, seed, (text) => {
    const devices = parseCounters(text);
    for (const device of devices) {
      const numbers = [...Object.values(readsOf(device)), ...operationsOf(device).values()];
      for (const number of numbers) assert.ok(number >= 0 && Number.isFinite(number), text);
    }
    return devices.length > 0;
  });
};

/** Texts with lines lost, doubled and mixed with others', numbers at their borders, letters put in, cut anywhere. */
export function mutatedText(texts: readonly string[]): fc.Arbitrary<string> {
  const piece = fc.oneof(
    fc.string({ maxLength: 3 }),
    fc.constantFrom(
      "-1",
      "0",
      "9".repeat(25),
      "1e400",
      "18446744073709551616",
      "EOF",
      ":",
      "{",
      "[OST:",
      "\r\n",
      "\0",
      "é",
    ),
  );
  const change = fc.oneof(
    fc.record({ kind: fc.constant("put" as const), at: fc.nat(3000), piece, over: fc.nat(8) }),
    fc.record({ kind: fc.constant("number" as const), nth: fc.nat(40), piece }),
    fc.record({ kind: fc.constant("line" as const), nth: fc.nat(60), with: fc.option(fc.constantFrom(...texts)) }),
    fc.record({ kind: fc.constant("cut" as const), at: fc.nat(3000) }),
  );
  const damaged = fc
    .tuple(fc.constantFrom(...texts), fc.array(change, { maxLength: 5 }))
    .map(([text, changes]) => changes.reduce((now, how) => damage(now, how), text));
  return fc.oneof({ weight: 9, arbitrary: damaged }, { weight: 1, arbitrary: fc.string() });
}

type Change =
  | { kind: "put"; at: number; piece: string; over: number }
  | { kind: "number"; nth: number; piece: string }
  | { kind: "line"; nth: number; with: string | null }
  | { kind: "cut"; at: number };

function damage(text: string, how: Change): string {
  if (how.kind === "put") return text.slice(0, how.at) + how.piece + text.slice(how.at + how.over);
  if (how.kind === "cut") return text.slice(0, how.at);
  if (how.kind === "number") {
    let seen = -1;
    return text.replace(/\d+/g, (digits) => (++seen === how.nth ? how.piece : digits));
  }
  const lines = text.split("\n");
  const other = how.with?.split("\n");
  lines.splice(how.nth % lines.length, 1, ...(other === undefined ? [] : other.slice(how.nth % other.length)));
  return lines.join("\n");
}

/** Asks of a layout what its users do. */
function judge(layout: Layout): void {
  const { osts, mdt, none } = spreadOf(layout, 5n, 1n << 33n);
  ostAt(layout, 1n << 40n);
  for (const [ost, bytes] of osts) assert.ok(Number.isSafeInteger(ost) && ost >= 0 && bytes > 0n);
  // Components of a damaged layout may cover the same bytes.
  if (layout.components.length > 1) return;
  const sum = [...osts.values()].reduce((all, here) => all + here, mdt + none);
  assert.equal(sum, 1n << 33n);
}

function isRefusal(error: unknown): AthanorError {
  assert.ok(error instanceof AthanorError, String(error));
  assert.equal(error.code, "ATH_LAYOUT_INVALID");
  return error;
}

/** `read`: true where it told something. */
export function told<Input>(
  inputs: fc.Arbitrary<Input>,
  runs: number,
  seed: number,
  read: (input: Input) => boolean,
): HostileReport {
  const report = { told: 0, refused: 0 };
  const property = fc.property(inputs, (input) => void report[read(input) ? "told" : "refused"]++);
  fc.assert(property, { numRuns: runs, seed });
  return report;
}
