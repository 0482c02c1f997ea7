// decodeExamples: frames → CRC → Example → stored rows, one call for a whole block.
import { clearFault, fault, faultRecordAt, inColumn, inRecord } from "./fault";
import { frame, payloadBytes } from "./frames";
import {
  FAULT_KIND,
  FAULT_MISSING,
  KIND_BYTES,
  KIND_FLOAT,
  KIND_INT64,
  PLAN_COLUMN,
  PLAN_FEATURE,
  PLAN_HEADER,
  STORAGE_F32,
  STORAGE_I32,
  STORAGE_I64,
  STORAGE_LENGTH,
  STORAGE_PREFIX,
} from "./layout";
import { appendInts } from "./integers";
import { appendF32, appendPrefix, countVarints, malformed, openPrefix, prefixOnes } from "./lists";
import { lengthAt, next, sameBytes, skipField, tagAt } from "./wire";

export let decodedRows: u32 = 0;
export let truncatedRows: u32 = 0;

/** Column currently decoded: bits of columns that have their value, and whether a list of this row was cut. */
let seen: u64 = 0;
let cut: bool = false;
/** Values of the column that was decoded last. */
let values: u32 = 0;

export function decodeExamples(
  raw: usize,
  rawBytes: usize,
  firstRecord: f64,
  records: u32,
  rows: usize,
  plan: usize,
  shardKey: u64,
  checkCrc: bool,
): void {
  clearFault();
  decodedRows = 0;
  truncatedRows = 0;
  const end = raw + rawBytes;
  let p = raw;
  for (let i: u32 = 0; i < records; i++) {
    inRecord(i, p);
    const row = <usize>load<u32>(rows + (i << 2));
    const payload = frame(p, end, checkCrc && row != 0);
    if (payload == 0) return;
    const behind = payload + payloadBytes;
    if (row != 0) {
      seen = 0;
      cut = false;
      if (!decodeExample(payload, behind, plan, row)) return;
      if (!padMissing(plan, row)) return;
      store<u64>(row, shardKey);
      store<u64>(row, <u64>firstRecord + i, 8);
      store<u64>(row, cut ? (<u64>1) << 32 : 0, 16);
      store<u64>(row, 0, 24);
      decodedRows++;
      if (cut) truncatedRows++;
    }
    p = behind + 4;
  }
}

// Example { features: 1 }, Features { map entries: 1 }: two levels of one shape.
function decodeExample(p: usize, end: usize, plan: usize, row: usize): bool {
  while (p < end) {
    const tag = tagAt(p, end);
    if (next == 0) return malformed(p) == 0;
    if (tag == 0x0a) {
      const length = lengthAt(next, end);
      if (next == 0) return malformed(p) == 0;
      const behind = next + length;
      if (!decodeFeatures(next, behind, plan, row)) return false;
      p = behind;
    } else {
      skipField(tag, next, end);
      if (next == 0) return malformed(p) == 0;
      p = next;
    }
  }
  return true;
}

function decodeFeatures(p: usize, end: usize, plan: usize, row: usize): bool {
  while (p < end) {
    const tag = tagAt(p, end);
    if (next == 0) return malformed(p) == 0;
    if (tag == 0x0a) {
      const length = lengthAt(next, end);
      if (next == 0) return malformed(p) == 0;
      const behind = next + length;
      if (!readEntry(next, behind)) return false;
      if (!decodeFeature(plan, row)) return false;
      p = behind;
    } else {
      skipField(tag, next, end);
      if (next == 0) return malformed(p) == 0;
      p = next;
    }
  }
  return true;
}

/** The map entry last read. A missing key is the empty name, a missing value a feature without a kind. */
export let keyAt: usize = 0;
export let keyBytes: usize = 0;
export let valueAt: usize = 0;
export let valueBytes: usize = 0;

/** Reads one map entry. Two values in one entry (they would have to be merged) are refused as malformed. */
export function readEntry(p: usize, end: usize): bool {
  keyAt = p;
  keyBytes = 0;
  valueAt = 0;
  valueBytes = 0;
  while (p < end) {
    const tag = tagAt(p, end);
    if (next == 0) return malformed(p) == 0;
    if (tag == 0x0a || tag == 0x12) {
      const length = lengthAt(next, end);
      if (next == 0 || (tag == 0x12 && valueAt != 0)) return malformed(p) == 0;
      if (tag == 0x0a) {
        keyAt = next;
        keyBytes = length;
      } else {
        valueAt = next;
        valueBytes = length;
      }
      p = next + length;
    } else {
      skipField(tag, next, end);
      if (next == 0) return malformed(p) == 0;
      p = next;
    }
  }
  return true;
}

function decodeFeature(plan: usize, row: usize): bool {
  const features = load<u32>(plan);
  for (let f: u32 = 0; f < features; f++) {
    const feature = plan + PLAN_HEADER + f * PLAN_FEATURE;
    if (load<u32>(feature, 4) != <u32>keyBytes || !sameBytes(plan + load<u32>(feature), keyAt, keyBytes)) continue;
    const first = load<u32>(feature, 8);
    const last = first + load<u32>(feature, 12);
    const value = valueAt;
    const behind = valueAt + valueBytes;
    for (let c = first; c < last; c++) {
      const column = plan + PLAN_HEADER + features * PLAN_FEATURE + c * PLAN_COLUMN;
      inColumn(load<i32>(column, 12));
      if (!decodeColumn(column, row + load<u32>(column, 8), value, behind)) return false;
      // Of several features of one name the last one counts.
      const bit = (<u64>1) << c;
      if (values == 0 && load<u32>(column, 24) != 0) seen &= ~bit;
      else seen |= bit;
    }
    inColumn(-1);
    return true;
  }
  return true;
}

// Feature { oneof kind: bytes 1, float 2, int64 3 }: the last kind wins, lists of one kind are joined.
function decodeColumn(column: usize, out: usize, p: usize, end: usize): bool {
  const storage = load<u32>(column);
  const max = load<u32>(column, 4);
  const wanted: u32 = storage == STORAGE_LENGTH ? 0 : storage == STORAGE_F32 ? KIND_FLOAT : KIND_INT64;
  const start = p;
  let kind: u32 = 0;
  let count: i32 = 0;
  openPrefix();
  while (p < end) {
    const tag = tagAt(p, end);
    if (next == 0) return malformed(p) == 0;
    const field = tag >>> 3;
    if ((tag & 7) == 2 && field <= <u32>KIND_INT64) {
      const length = lengthAt(next, end);
      if (next == 0) return malformed(p) == 0;
      if (kind != field) {
        kind = field;
        count = 0;
        openPrefix();
      }
      const behind = next + length;
      if (wanted == 0 || wanted == kind) {
        count = appendList(storage, kind, next, behind, out, count, max);
        if (count < 0) return false;
      }
      p = behind;
    } else {
      skipField(tag, next, end);
      if (next == 0) return malformed(p) == 0;
      p = next;
    }
  }
  if (kind != 0 && wanted != 0 && kind != wanted) {
    fault(FAULT_KIND, start, kind, wanted);
    return false;
  }
  if (<u32>count > max) cut = true;
  values = count;
  finish(column, out, min<u32>(count, max));
  return true;
}

// Int64List, FloatList, BytesList { value: 1 }, packed or one tag a value, in any mixture.
function appendList(storage: u32, kind: u32, p: usize, end: usize, out: usize, count: i32, max: u32): i32 {
  const single: u32 = kind == KIND_INT64 ? 0x08 : kind == KIND_FLOAT ? 0x0d : 0x0a;
  while (p < end) {
    const tag = tagAt(p, end);
    if (next == 0) return malformed(p);
    let from = next;
    let behind: usize;
    if (tag == 0x0a) {
      const length = lengthAt(next, end);
      if (next == 0) return malformed(p);
      from = next;
      behind = next + length;
    } else {
      skipField(tag, next, end);
      if (next == 0) return malformed(p);
      behind = next;
    }
    if (tag == 0x0a || tag == single) {
      if (kind == KIND_BYTES) count++;
      else if (storage == STORAGE_I32) count = appendInts<i32>(from, behind, out, count, max);
      else if (storage == STORAGE_I64) count = appendInts<i64>(from, behind, out, count, max);
      else if (storage == STORAGE_F32) count = appendF32(from, behind, out, count, max);
      else if (storage == STORAGE_PREFIX) count = appendPrefix(from, behind, count);
      else if (kind == KIND_INT64) count = countVarints(from, behind, count);
      else count = appendF32(from, behind, out, count, 0); // counts, stores nothing
      if (count < 0) return -1;
    }
    p = behind;
  }
  return count;
}

/** Fills a column behind its last value, or writes its number. */
function finish(column: usize, out: usize, count: u32): void {
  const storage = load<u32>(column);
  const max = load<u32>(column, 4);
  if (storage == STORAGE_PREFIX) store<u32>(out, min(prefixOnes, max));
  else if (storage == STORAGE_LENGTH) store<u32>(out, count);
  else if (storage == STORAGE_I64) {
    const pad = load<u64>(column, 16);
    for (let i = count; i < max; i++) store<u64>(out + (i << 3), pad);
  } else {
    const pad = load<u32>(column, 16);
    const four = i32x4.splat(pad);
    let i = count;
    for (; i + 4 <= max; i += 4) v128.store(out + (i << 2), four);
    for (; i < max; i++) store<u32>(out + (i << 2), pad);
  }
}

function padMissing(plan: usize, row: usize): bool {
  const columns = load<u32>(plan, 4);
  const first = plan + PLAN_HEADER + load<u32>(plan) * PLAN_FEATURE;
  openPrefix();
  for (let c: u32 = 0; c < columns; c++) {
    if ((seen >>> c) & 1) continue;
    const column = first + c * PLAN_COLUMN;
    if (load<u32>(column, 24) != 0) {
      inColumn(load<i32>(column, 12));
      return fault(FAULT_MISSING, faultRecordAt, 0, 1) != 0;
    }
    finish(column, row + load<u32>(column, 8), 0);
  }
  return true;
}
