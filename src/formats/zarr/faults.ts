/** Why a chunk cannot be decoded: thrown by its codecs, made into errors with file and rows by `columns.ts`. */
import { AthanorError, messageOf, type Where } from "../../base/errors.ts";
import { RecordCrc, RecordMalformed, RecordTruncated } from "../errors.ts";

/** Their order is part of the index: an empty segment's offset says why its chunk could not be found. */
export const FAULT_KINDS = ["malformed", "truncated", "crc"] as const;
export type FaultKind = (typeof FAULT_KINDS)[number];

export class ChunkFault extends Error {
  readonly kind: FaultKind;

  constructor(kind: FaultKind, what: string, cause?: unknown) {
    super(what, cause === undefined ? undefined : { cause });
    this.kind = kind;
  }
}

const ERRORS = { truncated: RecordTruncated, crc: RecordCrc, malformed: RecordMalformed };

/** `error` may come from a library: whatever it throws over the bytes of a chunk is a fault of the chunk. */
export function chunkError(error: unknown, chunk: string, where: Where): AthanorError {
  if (error instanceof AthanorError) return error;
  const kind = faultKind(error);
  return new ERRORS[kind](
    `${chunk} cannot be decoded: ${messageOf(error)}`,
    where,
    'put the right file back, or train with on_corrupt="replace"',
    error instanceof ChunkFault ? error.cause : error,
  );
}

export function faultKind(error: unknown): FaultKind {
  if (error instanceof ChunkFault) return error.kind;
  // node:zlib at the end of its input.
  return (error as { code?: string }).code === "Z_BUF_ERROR" ? "truncated" : "malformed";
}
