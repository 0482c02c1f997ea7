/**
 * Columns of a block of TFRecord, for text: the kernel writes numbers straight into rows and knows nothing of a tokenizer. Record by
 * record in JavaScript: slower, and fast enough beside tokenizing.
 *
 * Contract: the same bad records as the kernel finds. Behind a length that cannot be trusted all records of the piece are bad. The kind
 * of a field is that of the index, `meta.kinds`: of a block alone it could not be told which of two kinds is the odd one.
 *
 * @example
 * columns({ ...raw, meta: { kinds: { text: "bytes" } } }, ["text"]).fields.get("text");
 */
import { crc32c } from "../../base/crc32c.ts";
import type { AthanorError, Where } from "../../base/errors.ts";
import { FeatureKind, RecordCrc, RecordMalformed, RecordTruncated } from "../errors.ts";
import { FieldKinds, RecordFields } from "../record-fields.ts";
import type { BlockColumns, RawBlock, ValueKind } from "../types.ts";
import type { FeatureList } from "./example.ts";
import { parseRecord } from "./records.ts";
import { FRAME_BYTES, HEADER_BYTES, masked, payloadBytes, u32 } from "./resync.ts";

const DAMAGED = "the file is damaged: copy or write the shard again";

export function columns(raw: RawBlock, fields: readonly string[]): BlockColumns {
  const { file, firstRecord, records } = raw;
  const [segment] = raw.segments;
  if (segment === undefined) throw new RangeError("a block of TFRecord has one segment");
  const { bytes } = segment;
  const known = new FieldKinds(
    (raw.meta as unknown as { readonly kinds: { readonly [field: string]: ValueKind } }).kinds,
  );
  const set = new RecordFields(known, fields);
  let at = 0;
  for (let i = 0; i < records; i++) {
    const where: Where = { file, record: firstRecord + i, byteOffset: segment.offset + at };
    const length = at + HEADER_BYTES <= bytes.length ? payloadBytes(bytes, at) : -1;
    if (length < 0 || at + length + FRAME_BYTES > bytes.length) {
      const fault = lost(length, where);
      for (let rest = i; rest < records; rest++) set.fail(fault, { ...where, record: firstRecord + rest });
      break;
    }
    // A copy: the bytes may lie in memory that others write to.
    const payload = bytes.slice(at + HEADER_BYTES, at + HEADER_BYTES + length);
    try {
      if (raw.checkCrc && masked(crc32c(payload)) !== u32(bytes, at + HEADER_BYTES + length)) {
        throw new RecordCrc("payload CRC32C mismatch", where, DAMAGED);
      }
      const example = parseRecord(file, { record: firstRecord + i, byteOffset: segment.offset + at, payload });
      for (const name of fields) put(set, name, example.get(name), known, where);
      set.end();
    } catch (error) {
      set.fail(error, where);
    }
    at += length + FRAME_BYTES;
  }
  return set.finish();
}

function put(
  set: RecordFields,
  name: string,
  list: FeatureList | null | undefined,
  known: FieldKinds,
  where: Where,
): void {
  if (list === null || list === undefined) return;
  // Before `set` has it, which would take integers for floats: the kernel does not.
  const kind = known.kinds.get(name);
  if (kind !== undefined && list.kind !== kind) {
    throw new FeatureKind(
      `feature ${JSON.stringify(name)} holds a list of ${list.kind}, expected ${kind}`,
      where,
      "write the feature with one kind in all records",
    );
  }
  if (list.kind !== "bytes") return set.list(name, list.kind, list.values, false);
  if (list.values.length > 1) {
    throw new RecordMalformed(
      `feature ${JSON.stringify(name)} holds ${list.values.length} texts, expected one`,
      where,
      "write one text a record",
    );
  }
  const [text] = list.values;
  if (text !== undefined) set.bytes(name, text);
}

function lost(length: number, where: Where): AthanorError {
  return length < 0
    ? new RecordCrc("no record begins here: its length or the CRC of that is wrong", where, DAMAGED)
    : new RecordTruncated(`record truncated: its header says ${length} payload bytes, fewer remain`, where, DAMAGED);
}
