// statsExamples: what the index learns of the features of many records.
import { readEntry, keyAt, keyBytes, valueAt, valueBytes } from "./decode";
import { clearFault, fault, inColumn, inRecord } from "./fault";
import {
  FAULT_KIND,
  FAULT_SEQUENCE_EXAMPLE,
  FAULT_UNKNOWN_FEATURE,
  KIND_BYTES,
  KIND_FLOAT,
  KIND_INT64,
  STATS_ENTRY,
  STATS_HEADER,
  STATS_KIND,
  STATS_MAX,
  STATS_MAX_LENGTH,
  STATS_MIN,
  STATS_MIN_LENGTH,
  STATS_NAME,
  STATS_NAME_BYTES,
  STATS_NOW_COUNT,
  STATS_NOW_KIND,
  STATS_NOW_MAX,
  STATS_NOW_MIN,
  STATS_NOW_PREFIX,
  STATS_PREFIX,
  STATS_PRESENT,
  STATS_STAMP,
  STATS_VALUES,
} from "./layout";
import { malformed } from "./lists";
import { greatest, least, openSurvey, prefix, surveyVarints } from "./survey";
import { lengthAt, next, sameBytes, skipField, tagAt } from "./wire";

/** Folds `records` payloads (u32 offsets from `ptr`, u32 lengths) into the table; returns how many were folded. */
export function statsExamples(ptr: usize, offsets: usize, lengths: usize, records: u32, table: usize): u32 {
  clearFault();
  for (let i: u32 = 0; i < records; i++) {
    const payload = ptr + load<u32>(offsets + (i << 2));
    inRecord(i, payload - 12);
    const stamp = load<u32>(table, 4) + 1;
    store<u32>(table, stamp, 4);
    if (!walkExample(payload, payload + load<u32>(lengths + (i << 2)), table, stamp)) return i;
    if (!fold(table, stamp, payload)) return i;
  }
  return records;
}

function walkExample(p: usize, end: usize, table: usize, stamp: u32): bool {
  while (p < end) {
    const tag = tagAt(p, end);
    if (next == 0) return malformed(p) == 0;
    if (tag == 0x0a || tag == 0x12) {
      const length = lengthAt(next, end);
      if (next == 0) return malformed(p) == 0;
      if (tag == 0x12) {
        fault(FAULT_SEQUENCE_EXAMPLE, p, 0, 0); // its feature_lists
        return false;
      }
      const behind = next + length;
      if (!walkFeatures(next, behind, table, stamp)) return false;
      p = behind;
    } else {
      skipField(tag, next, end);
      if (next == 0) return malformed(p) == 0;
      p = next;
    }
  }
  return true;
}

function walkFeatures(p: usize, end: usize, table: usize, stamp: u32): bool {
  while (p < end) {
    const tag = tagAt(p, end);
    if (next == 0) return malformed(p) == 0;
    if (tag == 0x0a) {
      const length = lengthAt(next, end);
      if (next == 0) return malformed(p) == 0;
      const behind = next + length;
      if (!readEntry(next, behind)) return false;
      const entry = find(table);
      if (entry == 0) {
        fault(FAULT_UNKNOWN_FEATURE, p, 0, 0);
        return false;
      }
      store<u32>(entry, stamp, STATS_STAMP);
      if (!readFeature(entry, valueAt, valueAt + valueBytes)) return false;
      p = behind;
    } else {
      skipField(tag, next, end);
      if (next == 0) return malformed(p) == 0;
      p = next;
    }
  }
  return true;
}

function find(table: usize): usize {
  const features = load<u32>(table);
  let entry = table + STATS_HEADER;
  for (let f: u32 = 0; f < features; f++) {
    if (
      load<u32>(entry, STATS_NAME_BYTES) == <u32>keyBytes &&
      sameBytes(table + load<u32>(entry, STATS_NAME), keyAt, keyBytes)
    )
      return entry;
    entry += STATS_ENTRY;
  }
  return 0;
}

function readFeature(entry: usize, p: usize, end: usize): bool {
  let kind: u32 = 0;
  let count: i32 = 0;
  openSurvey(load<i64>(entry, STATS_MIN), load<i64>(entry, STATS_MAX), load<u32>(entry, STATS_PREFIX));
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
        openSurvey(load<i64>(entry, STATS_MIN), load<i64>(entry, STATS_MAX), load<u32>(entry, STATS_PREFIX));
      }
      const behind = next + length;
      count = readList(kind, next, behind, count);
      if (count < 0) return false;
      p = behind;
    } else {
      skipField(tag, next, end);
      if (next == 0) return malformed(p) == 0;
      p = next;
    }
  }
  store<u32>(entry, kind, STATS_NOW_KIND);
  store<u32>(entry, count, STATS_NOW_COUNT);
  store<u32>(entry, prefix != 0, STATS_NOW_PREFIX);
  store<i64>(entry, least, STATS_NOW_MIN);
  store<i64>(entry, greatest, STATS_NOW_MAX);
  return true;
}

function readList(kind: u32, p: usize, end: usize, count: i32): i32 {
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
      else if (kind == KIND_INT64) count = surveyVarints(from, behind, count);
      else if ((behind - from) & 3) return malformed(from);
      else count += <i32>((behind - from) >>> 2);
      if (count < 0) return -1;
    }
    p = behind;
  }
  return count;
}

function fold(table: usize, stamp: u32, payload: usize): bool {
  const features = load<u32>(table);
  // Kinds first: a record with a fault leaves no trace in the table.
  for (let f: u32 = 0; f < features; f++) {
    const entry = table + STATS_HEADER + f * STATS_ENTRY;
    const kind = load<u32>(entry, STATS_NOW_KIND);
    const known = load<u32>(entry, STATS_KIND);
    if (load<u32>(entry, STATS_STAMP) == stamp && kind != 0 && known != 0 && kind != known) {
      inColumn(f);
      fault(FAULT_KIND, payload, kind, known);
      return false;
    }
  }
  for (let f: u32 = 0; f < features; f++) {
    const entry = table + STATS_HEADER + f * STATS_ENTRY;
    const kind = load<u32>(entry, STATS_NOW_KIND);
    if (load<u32>(entry, STATS_STAMP) != stamp || kind == 0) continue;
    const count = <u64>load<u32>(entry, STATS_NOW_COUNT);
    const present = load<u64>(entry, STATS_PRESENT);
    store<u32>(entry, kind, STATS_KIND);
    store<u64>(entry, present + 1, STATS_PRESENT);
    store<u64>(entry, load<u64>(entry, STATS_VALUES) + count, STATS_VALUES);
    if (present == 0 || count < load<u64>(entry, STATS_MIN_LENGTH)) store<u64>(entry, count, STATS_MIN_LENGTH);
    if (count > load<u64>(entry, STATS_MAX_LENGTH)) store<u64>(entry, count, STATS_MAX_LENGTH);
    if (kind != KIND_INT64) continue;
    if (load<u32>(entry, STATS_NOW_PREFIX) == 0) store<u32>(entry, 0, STATS_PREFIX);
    if (load<i64>(entry, STATS_NOW_MIN) < load<i64>(entry, STATS_MIN))
      store<i64>(entry, load<i64>(entry, STATS_NOW_MIN), STATS_MIN);
    if (load<i64>(entry, STATS_NOW_MAX) > load<i64>(entry, STATS_MAX))
      store<i64>(entry, load<i64>(entry, STATS_NOW_MAX), STATS_MAX);
  }
  return true;
}
