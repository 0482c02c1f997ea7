/**
 * Records of a piece of a shard into the builders of their fields: lines, or elements of an array.
 *
 * @example
 * const found = decodeRecords(layout, keys, bytes, { from: 0, to: bytes.length, most: 1000 }, place);
 * const columns = { fields: columnsOf(keys, found.begins.length), faults: found.faults };
 */
import { isUtf8 } from "node:buffer";
import type { AthanorError } from "../../base/errors.ts";
import { FeatureKind, RecordMalformed, ValueRange } from "../errors.ts";
import type { Column } from "../types.ts";
import { ElementMatcher } from "./elements.ts";
import { Unfit } from "./field.ts";
import type { Keys } from "./keys.ts";
import { Malformed, RecordParser } from "./parser.ts";

/** How records lie in a file. */
export type Layout = "lines" | "array";

export interface Piece {
  from: number;
  /** End of a record, or of the data. */
  to: number;
  /** Records at most. */
  most: number;
}

export interface Place {
  file: string;
  firstRecord: number;
  /** Byte offset, for messages, of position 0; undefined: `at` stands for all (positions are those of decompressed bytes). */
  base: number;
  fixed?: boolean;
  /** Number of the first line, where it is known. */
  line?: number;
}

export interface FoundRecords {
  /** Where each begins. */
  begins: number[];
  faults: Map<number, AthanorError>;
  /** Behind the last one; what stands there is a record only if `most` were found. */
  at: number;
  /** Lines that were passed. */
  lines: number;
}

export function decodeRecords(layout: Layout, keys: Keys, bytes: Buffer, piece: Piece, place: Place): FoundRecords {
  for (const field of keys.fields.values()) field.clear();
  const { from, to, most } = piece;
  const found: FoundRecords = { begins: [], faults: new Map(), at: from, lines: 0 };
  const parser = new RecordParser(keys, layout === "array");
  parser.open(bytes);
  // One pass over all is several times faster than one a record.
  const valid = isUtf8(bytes.subarray(from, to));
  const lines = layout === "lines";
  const matcher = new ElementMatcher();
  while (found.at < to && found.begins.length < most) {
    const begin = lines ? firstByte(bytes, found, to) : elementBegin(bytes, found.at, to);
    if (begin === to) {
      found.at = to;
      break;
    }
    let end = to;
    if (lines) {
      const newline = bytes.indexOf(0x0a, begin);
      if (newline >= 0 && newline < to) end = newline;
    }
    const record = found.begins.length;
    found.begins.push(begin);
    let fault: AthanorError | undefined;
    try {
      parser.parse(begin, end, record);
      if (lines) parser.finish();
      else end = parser.at;
      if (!valid && !isUtf8(bytes.subarray(begin, end))) throw new Malformed("the text is not UTF-8");
      parser.conclude();
    } catch (error) {
      fault = faultOf(error, place, { begin, at: parser.at, record, line: found.lines });
      for (const field of keys.fields.values()) field.takeBack(record);
      found.faults.set(record, fault);
      if (!lines) {
        matcher.reset();
        end = matcher.end(bytes, begin, to);
        if (end < 0) end = to;
      }
    }
    found.at = lines ? Math.min(end + 1, to) : end;
    if (lines) found.lines++;
  }
  return found;
}

/** Columns of `records` records of what was decoded last; `inPlace`: they lie in the builders. */
export function columnsOf(keys: Keys, records: number, inPlace = false): Map<string, Column> {
  const columns = new Map<string, Column>();
  for (const [name, field] of keys.fields) {
    const column = field.column(records, inPlace);
    if (column !== undefined) columns.set(name, column);
  }
  return columns;
}

/** The first line that is not blank; passes over those before. */
function firstByte(bytes: Buffer, found: FoundRecords, to: number): number {
  let begin = found.at;
  for (let at = begin; at < to; at++) {
    const byte = bytes[at]!;
    if (byte === 0x0a) {
      found.lines++;
      begin = at + 1;
    } else if (byte !== 0x20 && byte !== 0x09 && byte !== 0x0d) return begin;
  }
  return to;
}

function elementBegin(bytes: Buffer, from: number, to: number): number {
  let at = from;
  while (at < to && (isSpace(bytes[at]!) || bytes[at] === 0x2c)) at++;
  return bytes[at] === 0x5d ? to : at;
}

export function isSpace(byte: number): boolean {
  return byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;
}

function faultOf(
  error: unknown,
  place: Place,
  found: { begin: number; at: number; record: number; line: number },
): AthanorError {
  const where = {
    file: place.file,
    record: place.firstRecord + found.record,
    byteOffset: place.fixed === true ? place.base : place.base + found.begin,
    ...(place.line === undefined ? {} : { line: place.line + found.line }),
  };
  const at = `at byte ${found.at - found.begin} of the record`;
  if (error instanceof Malformed) {
    return new RecordMalformed(`no valid JSON: ${error.message}, ${at}`, where, "mend or remove the record");
  }
  if (error instanceof Unfit) {
    const code = error.code === "range" ? ValueRange : FeatureKind;
    return new code(`${error.message}, ${at}`, where, "mend or remove the record");
  }
  throw error;
}
