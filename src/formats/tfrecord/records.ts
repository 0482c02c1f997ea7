/**
 * Records of a shard in file order, for `cat` and `verify`: the good ones before a fault come out, then it is thrown.
 *
 * @example
 * for await (const { record, byteOffset, payload } of readRecords(object, kernels, { from: 0, to: 10 })) …
 */
import type { Kernels } from "../../kernels/kernels.ts";
import type { ReadableObject } from "../../storage/types.ts";
import { FAULT } from "../../kernels/kernels.ts";
import { PayloadFault, readExample, type FeatureList } from "./example.ts";
import { faultError } from "./faults.ts";
import { FrameReader, returnWorkspace, takeWorkspace } from "./frames.ts";
import { encodingOf } from "./index.ts";

export interface RawRecord {
  record: number;
  /** First byte of the record in the file (of the decompressed stream for gzip and zlib). */
  byteOffset: number;
  /** A copy: it stays as it is. */
  payload: Uint8Array;
}

export interface RecordRange {
  /** @default 0 */
  from?: number;
  /** Exclusive. Bytes behind the last record of the range are not checked. @default all */
  to?: number;
}

export async function* readRecords(
  object: ReadableObject,
  kernels: Kernels,
  range: RecordRange = {},
): AsyncGenerator<RawRecord> {
  const { from = 0, to = Infinity } = range;
  const encoding = await encodingOf(object);
  const workspace = takeWorkspace(kernels.implementation);
  const reader = new FrameReader(object, encoding, workspace);
  try {
    for (let batch = await reader.next(); batch !== undefined; batch = await reader.next()) {
      const buffer = workspace.kernels.memory.buffer;
      const bytes = new Uint8Array(buffer);
      const offsets = new Uint32Array(buffer, workspace.offsets, batch.records);
      const lengths = new Uint32Array(buffer, workspace.lengths, batch.records);
      for (let i = Math.max(0, from - batch.firstRecord); i < batch.records; i++) {
        const record = batch.firstRecord + i;
        if (record >= to) return;
        const at = batch.base + offsets[i]!;
        yield { record, byteOffset: batch.offset + offsets[i]! - 12, payload: bytes.slice(at, at + lengths[i]!) };
      }
      if (batch.firstRecord + batch.records >= to) return;
    }
  } finally {
    reader.destroy();
    if (reader.idle) returnWorkspace(workspace);
  }
}

/** `readExample` with faults as errors that name file, record and byte offset. */
export function parseRecord(file: string, { record, byteOffset, payload }: RawRecord): Map<string, FeatureList | null> {
  try {
    return readExample(payload);
  } catch (error) {
    if (!(error instanceof PayloadFault)) throw error;
    const code = error.sequenceExample ? FAULT.sequenceExample : FAULT.malformed;
    const fault = { code, record: 0, recordOffset: 0, offset: 12 + error.offset, found: 0n, expected: 0n, column: -1 };
    throw faultError(fault, { file, firstRecord: record, fileOffset: byteOffset });
  }
}
