// Helpers of the tests of shards.
import assert from "node:assert/strict";
import { AthanorError } from "../../../src/base/errors.ts";
import { readRecords, type RawRecord } from "../../../src/formats/tfrecord/records.ts";
import { createKernels } from "../../../src/kernels/load.ts";
import { concat, example, frame, type Feature } from "../../kernels/examples.ts";
import { memoryObject } from "./memory-object.ts";

export const wasm = createKernels(0, "wasm");
export const twin = createKernels(0, "twin");

export async function failure(run: () => Promise<unknown>): Promise<AthanorError> {
  try {
    await run();
  } catch (error) {
    assert.ok(error instanceof AthanorError, String(error));
    return error;
  }
  throw new Error("expected an error");
}

export async function all(bytes: Uint8Array, range = {}): Promise<RawRecord[]> {
  const out: RawRecord[] = [];
  for await (const record of readRecords(memoryObject("x.tfrecord", bytes), wasm, range)) out.push(record);
  return out;
}

export const ints = (n: number): Feature => ({ kind: "int64", values: Array.from({ length: n }, (_, i) => BigInt(i)) });

/** 1400 records of 1 to 20 KB: some 14 MB in 4 blocks, more than one read of 8 MiB. Record i has i mod 5 values in `n`. */
export const MANY = 1400;
export const many: Uint8Array = concat(
  ...Array.from({ length: MANY }, (_, i) => {
    const bytes = new Uint8Array((500 + ((i * 7919) % 9500)) * 2).fill(i);
    return frame(
      example([
        ["ids", { kind: "bytes", values: [bytes] }],
        ["n", ints(i % 5)],
      ]),
    );
  }),
);
