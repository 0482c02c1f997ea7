/** Errors of reading shards: content faults, each with file, record and byte offset. */
import { defineError } from "../base/errors.ts";
import type { AthanorError, Where } from "../base/errors.ts";

/** The file is of another format than expected, or of none that we know. */
export const NotFormat = defineError("ATH_NOT_FORMAT", 1);
/** The file (or the decompressed stream) ends inside a record. */
export const RecordTruncated = defineError("ATH_RECORD_TRUNCATED", 1);
/** A stored checksum does not fit the bytes. */
export const RecordCrc = defineError("ATH_RECORD_CRC", 1);
/** The bytes are no valid record, though their checksums may fit. */
export const RecordMalformed = defineError("ATH_RECORD_MALFORMED", 1);
/** A record of 2 GiB or more. */
export const RecordTooLong = defineError("ATH_RECORD_TOO_LONG", 1);
/** A value that does not fit the column that was chosen for it. */
export const ValueRange = defineError("ATH_VALUE_RANGE", 1);
/** A column of one value a record has none in this record. */
export const ValueMissing = defineError("ATH_VALUE_MISSING", 1);
/** A feature holds other kinds of values than elsewhere in the set. */
export const FeatureKind = defineError("ATH_FEATURE_KIND", 1);
/** A compressed stream is damaged or cut; byteOffset counts compressed bytes. */
export const StreamCorrupt = defineError("ATH_STREAM_CORRUPT", 1);
/** tf.train.SequenceExample and others that we know and do not read. */
export const Unsupported = defineError("ATH_FORMAT_UNSUPPORTED", 1);
/** The description of a shard (header, metadata, index) contradicts itself or its data. */
export const ShardInvalid = defineError("ATH_SHARD_INVALID", 1);
/** A chunk of an array is not there, and its fill value cannot or is not to stand in for it. */
export const ChunkMissing = defineError("ATH_CHUNK_MISSING", 1);

/** The same for all formats. */
export function valueMissing(feature: string, where: Where): AthanorError {
  return new ValueMissing(
    `feature ${JSON.stringify(feature)} has no value in this record, and one in others (null, or left out)`,
    where,
    'write a value there, leave the column out with columns=, or let on_corrupt="replace" pass over such records',
  );
}
