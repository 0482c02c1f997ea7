/** The twin's statsExamples for one record; see `assembly/stats.ts`, whose semantics and faults it repeats. */
import {
  FAULT_KIND,
  FAULT_MALFORMED,
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
  STATS_PREFIX,
  STATS_PRESENT,
  STATS_VALUES,
} from "./assembly/layout.ts";
import type { Twin } from "./twin.ts";

interface Seen {
  kind: number;
  count: number;
  prefix: boolean;
  min: bigint;
  max: bigint;
}

const LEAST = -(2n ** 63n);
const GREATEST = 2n ** 63n - 1n;

export function statsExamples(twin: Twin, from: number, behind: number, table: number): void {
  const { view } = twin;
  const features = view.getUint32(table, true);
  const entryOf = (f: number): number => table + STATS_HEADER + f * STATS_ENTRY;
  const record = new Map<number, Seen>();
  const find = (): number | undefined => {
    for (let f = 0; f < features; f++) {
      const entry = entryOf(f);
      const bytes = view.getUint32(entry + STATS_NAME_BYTES, true);
      if (bytes === twin.keyBytes && twin.same(table + view.getUint32(entry + STATS_NAME, true), twin.keyAt, bytes))
        return f;
    }
    return undefined;
  };
  twin.eachEntry(
    from,
    behind,
    (at) => {
      const f = find();
      if (f === undefined) twin.fail(FAULT_UNKNOWN_FEATURE, at);
      record.set(f, readFeature(twin));
    },
    (tag, at) => {
      if (tag === 0x12) twin.fail(FAULT_SEQUENCE_EXAMPLE, at);
    },
  );
  const ordered = [...record].filter(([, seen]) => seen.kind !== 0).sort(([a], [b]) => a - b);
  for (const [f, { kind }] of ordered) {
    const known = view.getUint32(entryOf(f) + STATS_KIND, true);
    if (known !== 0 && known !== kind) {
      twin.column = f;
      twin.fail(FAULT_KIND, from, kind, known);
    }
  }
  for (const [f, { kind, count, prefix, min, max }] of ordered) {
    const entry = entryOf(f);
    const present = view.getBigUint64(entry + STATS_PRESENT, true);
    const add = (field: number, n: number): void =>
      view.setBigUint64(entry + field, view.getBigUint64(entry + field, true) + BigInt(n), true);
    view.setUint32(entry + STATS_KIND, kind, true);
    add(STATS_PRESENT, 1);
    add(STATS_VALUES, count);
    if (present === 0n || BigInt(count) < view.getBigUint64(entry + STATS_MIN_LENGTH, true)) {
      view.setBigUint64(entry + STATS_MIN_LENGTH, BigInt(count), true);
    }
    if (BigInt(count) > view.getBigUint64(entry + STATS_MAX_LENGTH, true)) {
      view.setBigUint64(entry + STATS_MAX_LENGTH, BigInt(count), true);
    }
    if (kind !== KIND_INT64) continue;
    if (!prefix) view.setUint32(entry + STATS_PREFIX, 0, true);
    if (min < view.getBigInt64(entry + STATS_MIN, true)) view.setBigInt64(entry + STATS_MIN, min, true);
    if (max > view.getBigInt64(entry + STATS_MAX, true)) view.setBigInt64(entry + STATS_MAX, max, true);
  }
}

function readFeature(twin: Twin): Seen {
  const fresh = (kind: number): Seen => ({ kind, count: 0, prefix: true, min: GREATEST, max: LEAST });
  let seen = fresh(0);
  let open = true;
  twin.eachField(twin.valueAt, twin.valueAt + twin.valueBytes, (tag, from, behind) => {
    const field = tag >>> 3;
    if (field > KIND_INT64) return;
    if (seen.kind !== field) {
      seen = fresh(field);
      open = true;
    }
    twin.eachRun(field, from, behind, (p, end) => {
      if (field === KIND_BYTES) seen.count++;
      else if (field === KIND_FLOAT) {
        if ((end - p) & 3) twin.fail(FAULT_MALFORMED, p);
        seen.count += (end - p) >>> 2;
      } else {
        while (p < end) {
          if (!twin.varint(p, end)) twin.fail(FAULT_MALFORMED, p);
          const value = twin.value();
          if (value < seen.min) seen.min = value;
          if (value > seen.max) seen.max = value;
          if (value === 0n) open = false;
          else if (value !== 1n || !open) seen.prefix = false;
          seen.count++;
          p = twin.next;
        }
      }
    });
  });
  return seen;
}
