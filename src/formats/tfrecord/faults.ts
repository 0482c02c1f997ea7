/**
 * Faults of the kernels as errors: file, record, byte offset, cause, remedy.
 *
 * Contract: `byteOffset` is the first byte of the record in the file (for gzip and zlib: in the decompressed stream); the
 * byte at which the fault was seen stands in the message.
 */
import type { AthanorError } from "../../base/errors.ts";
import { FAULT, type KernelFault } from "../../kernels/kernels.ts";
import {
  FeatureKind,
  RecordCrc,
  RecordMalformed,
  RecordTooLong,
  RecordTruncated,
  Unsupported,
  valueMissing,
  ValueRange,
} from "../errors.ts";

export interface FaultPlace {
  file: string;
  /** Number of the record that the kernel counts as 0. */
  firstRecord: number;
  /** Offset in the file (or decompressed stream) of the kernel's range. */
  fileOffset: number;
  /** Name of the feature concerned, if the fault has a column. */
  feature?: string | undefined;
}

const KINDS = ["nothing", "bytes", "float", "int64"];
const DAMAGED = "the file is damaged: copy or write the shard again";

export function faultError(fault: KernelFault, place: FaultPlace): AthanorError {
  const { code, found, expected } = fault;
  const where = {
    file: place.file,
    record: place.firstRecord + fault.record,
    byteOffset: place.fileOffset + fault.recordOffset,
  };
  const at = place.fileOffset + fault.offset;
  const feature = place.feature === undefined ? "a feature" : `feature ${JSON.stringify(place.feature)}`;
  switch (code) {
    case FAULT.lengthCrc:
      return new RecordCrc(
        `length CRC32C mismatch: found ${hex(expected)}, computed ${hex(found)} over the 8 length bytes`,
        where,
        DAMAGED,
      );
    case FAULT.payloadCrc:
      return new RecordCrc(
        `payload CRC32C mismatch: found ${hex(expected)} at byte ${at}, computed ${hex(found)}`,
        where,
        DAMAGED,
      );
    case FAULT.truncated:
      return new RecordTruncated(
        fault.offset === fault.recordOffset
          ? `record truncated: a header takes 12 bytes, only ${found} bytes remain`
          : `record truncated: header says ${expected} payload bytes${
              found < expected ? `, only ${found} bytes remain` : ` and a CRC of 4, only ${found} bytes remain for both`
            }`,
        where,
        DAMAGED,
      );
    case FAULT.tooLong:
      return new RecordTooLong(
        `record of ${BigInt.asUintN(64, found)} payload bytes, at most ${expected} are read`,
        where,
        "split it into smaller records",
      );
    case FAULT.kind:
      return new FeatureKind(
        `${feature} holds a list of ${KINDS[Number(found)]}, expected ${KINDS[Number(expected)]}`,
        where,
        "write the feature with one kind in all records",
      );
    case FAULT.range:
      return new ValueRange(
        `${feature}: value ${found} at byte ${at} does not fit int32`,
        where,
        "run `athanor index` again: the shard has changed",
      );
    case FAULT.notPrefix:
      return new ValueRange(
        `${feature}: value ${found} at byte ${at} breaks the mask, which must be ones followed by zeros`,
        where,
        "run `athanor index` again: the shard has changed",
      );
    case FAULT.missing:
      return valueMissing(place.feature ?? "", where);
    case FAULT.sequenceExample:
      return new Unsupported(
        "the payload is a tf.train.SequenceExample, expected tf.train.Example",
        where,
        "write its lists as features of an Example",
      );
    default:
      return new RecordMalformed(
        `payload is no tf.train.Example: bytes that are not protobuf at byte ${at}`,
        where,
        "write the shard again with tf.train.Example records",
      );
  }
}

function hex(crc: bigint): string {
  return `0x${crc.toString(16).padStart(8, "0")}`;
}
