/**
 * The kernels in plain TypeScript: the oracle of the tests, and the fallback where WebAssembly SIMD is missing
 * (some five times slower). Same names, same order of checks and same faults as `assembly/`; byte by byte instead of
 * 16 at a time. Values are two u32 halves (`low`, `high`), since a BigInt a value would cost an allocation each.
 *
 * @example
 * const kernels = createTwin(memory, 1024, true);
 */
import {
  FAULT_KIND,
  FAULT_LENGTH_CRC,
  FAULT_MALFORMED,
  FAULT_MISSING,
  FAULT_NOT_PREFIX,
  FAULT_PAYLOAD_CRC,
  FAULT_RANGE,
  FAULT_TOO_LONG,
  FAULT_TRUNCATED,
  KIND_BYTES,
  KIND_FLOAT,
  KIND_INT64,
  MAX_PAYLOAD,
  PLAN_COLUMN,
  PLAN_FEATURE,
  PLAN_HEADER,
  STORAGE_F32,
  STORAGE_I32,
  STORAGE_I64,
  STORAGE_LENGTH,
  STORAGE_PREFIX,
} from "./assembly/layout.ts";
import type { ExampleBlock, ExampleRows, FrameScan, KernelFault, Kernels, RowFlags, StatsScan } from "./kernels.ts";
import type { Digits } from "./digits.ts";
import { digits, narrowInts, unpackDelta, unpackHybrid, unshuffle } from "./twin-columns.ts";
import { statsExamples } from "./twin-stats.ts";

export function createTwin(memory: WebAssembly.Memory, tables: number, initTables: boolean): Kernels {
  const twin = new Twin(memory, tables);
  if (initTables) twin.initTables();
  return twin;
}

/** Thrown inside, caught at the kernel's border: the twin's way to unwind. */
class Fault extends Error {
  readonly code: number;
  readonly at: number;
  readonly found: bigint;
  readonly expected: bigint;
  constructor(code: number, at: number, found: bigint, expected: bigint) {
    super();
    this.code = code;
    this.at = at;
    this.found = found;
    this.expected = expected;
  }
}

export class Twin implements Kernels {
  readonly implementation = "twin";
  readonly memory: WebAssembly.Memory;
  readonly tables: number;
  bytes: Uint8Array = new Uint8Array(0);
  view: DataView = new DataView(new ArrayBuffer(0));
  /** Address behind what was last read, and the halves of the varint last read. */
  next = 0;
  low = 0;
  high = 0;
  /** The map entry last read. */
  keyAt = 0;
  keyBytes = 0;
  valueAt = 0;
  valueBytes = 0;
  column = -1;
  private payloadBytes = 0;
  private record = 0;
  private recordAt = 0;
  private cut = false;
  private ones = 0;
  private open = true;

  constructor(memory: WebAssembly.Memory, tables: number) {
    this.memory = memory;
    this.tables = tables;
  }

  // A memory that grew has a new buffer.
  private refresh(): void {
    if (this.bytes.buffer !== this.memory.buffer) {
      this.bytes = new Uint8Array(this.memory.buffer);
      this.view = new DataView(this.memory.buffer);
    }
  }

  /**
   * Only the first CRC slice: the twin needs no other table. It reads tables that WebAssembly made, but not the other way
   * round (SIMD is there for all threads of a process, or for none).
   */
  initTables(): void {
    this.refresh();
    for (let i = 0; i < 256; i++) {
      let c = i;
      for (let bit = 0; bit < 8; bit++) c = c & 1 ? (c >>> 1) ^ 0x82f63b78 : c >>> 1;
      this.view.setUint32(this.tables + i * 4, c >>> 0, true);
    }
  }

  crc32c(ptr: number, length: number, seed = 0): number {
    this.refresh();
    const table = new Uint32Array(this.memory.buffer, this.tables, 256);
    let c = ~seed;
    for (let i = ptr, end = ptr + length; i < end; i++) c = table[(c ^ this.bytes[i]!) & 255]! ^ (c >>> 8);
    return ~c >>> 0;
  }

  gather(rows: number, n: number, rowOffset: number, bytes: number, out: number): void {
    this.refresh();
    for (let i = 0; i < n; i++) {
      const from = this.view.getUint32(rows + i * 4, true) + rowOffset;
      this.bytes.copyWithin(out + i * bytes, from, from + bytes);
    }
  }

  gatherHeads(rows: number, n: number, out: number): RowFlags {
    this.refresh();
    let cut = 0;
    let replaced = 0;
    for (let i = 0; i < n; i++) {
      const row = this.view.getUint32(rows + i * 4, true);
      this.bytes.copyWithin(out + i * 32 + 8, row, row + 20);
      const flags = this.view.getUint32(row + 20, true);
      cut += flags & 1;
      replaced += (flags >>> 1) & 1;
    }
    return { cut, replaced };
  }

  scatter(rows: number, n: number, ptr: number, stride: number, rowOffset: number, bytes: number): void {
    this.refresh();
    for (let i = 0; i < n; i++) {
      const row = this.view.getUint32(rows + i * 4, true);
      const from = ptr + i * stride;
      if (row !== 0) this.bytes.copyWithin(row + rowOffset, from, from + bytes);
    }
  }

  scanFrames(ptr: number, length: number, max: number, offsets: number, lengths: number, crc: number): FrameScan {
    this.refresh();
    const end = ptr + length;
    let p = ptr;
    let records = 0;
    let needed = 0;
    const fault = this.guard(ptr, () => {
      while (records < max && p < end) {
        this.inRecord(records, p);
        try {
          const payload = this.frame(p, end, true);
          this.view.setUint32(offsets + records * 4, payload - ptr, true);
          this.view.setUint32(lengths + records * 4, this.payloadBytes, true);
          p = payload + this.payloadBytes + 4;
          records++;
        } catch (error) {
          if (!(error instanceof Fault) || error.code !== FAULT_TRUNCATED) throw error;
          needed = end - p < 12 ? 16 : this.payloadBytes + 16;
          return;
        }
      }
    });
    return { records, consumed: p - ptr, needed, crc32c: this.crc32c(ptr, p - ptr, crc), fault };
  }

  decodeExamples(block: ExampleBlock): ExampleRows {
    this.refresh();
    const { raw, plan, checkCrc } = block;
    const end = raw + block.rawBytes;
    let p = raw;
    let rows = 0;
    let truncated = 0;
    const fault = this.guard(raw, () => {
      for (let i = 0; i < block.records; i++) {
        this.inRecord(i, p);
        const row = this.view.getUint32(block.rows + i * 4, true);
        const payload = this.frame(p, end, checkCrc && row !== 0);
        const behind = payload + this.payloadBytes;
        if (row !== 0) {
          this.cut = false;
          const seen = new Set<number>();
          this.eachEntry(payload, behind, () => this.decodeFeature(plan, row, seen));
          this.padMissing(plan, row, seen);
          this.view.setBigUint64(row, block.shardKey, true);
          this.view.setBigUint64(row + 8, BigInt(block.firstRecord + i), true);
          this.view.setUint32(row + 16, 0, true);
          this.view.setUint32(row + 20, this.cut ? 1 : 0, true);
          this.view.setBigUint64(row + 24, 0n, true);
          rows++;
          if (this.cut) truncated++;
        }
        p = behind + 4;
      }
    });
    return { rows, truncated, fault };
  }

  statsExamples(ptr: number, offsets: number, lengths: number, records: number, table: number): StatsScan {
    this.refresh();
    let done = 0;
    const fault = this.guard(ptr, () => {
      for (; done < records; done++) {
        const payload = ptr + this.view.getUint32(offsets + done * 4, true);
        this.inRecord(done, payload - 12);
        statsExamples(this, payload, payload + this.view.getUint32(lengths + done * 4, true), table);
      }
    });
    return { records: done, fault };
  }

  unpackHybrid(
    ptr: number,
    length: number,
    width: number,
    out: number,
    count: number,
    words: number,
    size: number,
  ): boolean {
    return unpackHybrid(this.memory, ptr, length, width, out, count, words, size);
  }

  unpackDelta(ptr: number, length: number, out: number, count: number, form: number): number {
    return unpackDelta(this.memory, ptr, length, out, count, form);
  }

  narrowInts(ptr: number, count: number, out: number): boolean {
    return narrowInts(this.memory, ptr, count, out);
  }

  unshuffle(ptr: number, length: number, size: number, out: number): void {
    unshuffle(this.memory, ptr, length, size, out);
  }

  readDigits(ptr: number, length: number, out: number, max: number): Digits {
    return digits(this.memory, ptr, length, out, max);
  }

  private guard(ptr: number, run: () => void): KernelFault | undefined {
    this.column = -1;
    try {
      run();
      return undefined;
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      const { code, at, found, expected } = error;
      return {
        code,
        record: this.record,
        recordOffset: this.recordAt - ptr,
        offset: at - ptr,
        found,
        expected,
        column: this.column,
      };
    }
  }

  private inRecord(record: number, at: number): void {
    this.record = record;
    this.recordAt = at;
  }

  fail(code: number, at: number, found: bigint | number = 0, expected: bigint | number = 0): never {
    throw new Fault(code, at, BigInt(found), BigInt(expected));
  }

  private maskedCrc(ptr: number, length: number): number {
    const c = this.crc32c(ptr, length);
    return (((c >>> 15) | (c << 17)) + 0xa282ead8) >>> 0;
  }

  private frame(p: number, end: number, checkCrc: boolean): number {
    const left = end - p;
    if (left < 12) this.fail(FAULT_TRUNCATED, p, left, 12);
    const crc = this.maskedCrc(p, 8);
    const stored = this.view.getUint32(p + 8, true);
    if (crc !== stored) this.fail(FAULT_LENGTH_CRC, p + 8, crc, stored);
    const length = this.view.getBigUint64(p, true);
    if (length > MAX_PAYLOAD) this.fail(FAULT_TOO_LONG, p, BigInt.asIntN(64, length), MAX_PAYLOAD);
    this.payloadBytes = Number(length);
    const payload = p + 12;
    if (left < this.payloadBytes + 16) this.fail(FAULT_TRUNCATED, payload, left - 12, length);
    if (checkCrc) {
      const behind = payload + this.payloadBytes;
      const got = this.maskedCrc(payload, this.payloadBytes);
      const want = this.view.getUint32(behind, true);
      if (got !== want) this.fail(FAULT_PAYLOAD_CRC, behind, got, want);
    }
    return payload;
  }

  /** Reads a varint into `low` and `high`; false: it is longer than ten bytes or passes `end`. */
  varint(p: number, end: number): boolean {
    let low = 0;
    let high = 0;
    for (let i = 0; i < 10 && p < end; i++) {
      const b = this.bytes[p++]!;
      const bits = b & 0x7f;
      if (i < 4) low |= bits << (7 * i);
      else if (i === 4) {
        low |= bits << 28;
        high = bits >>> 4;
      } else high |= bits << (7 * i - 32); // the tenth byte gives one bit, the rest falls off
      if (b < 0x80) {
        this.low = low >>> 0;
        this.high = high >>> 0;
        this.next = p;
        return true;
      }
    }
    return false;
  }

  value(): bigint {
    return BigInt.asIntN(64, (BigInt(this.high) << 32n) | BigInt(this.low));
  }

  tagAt(p: number, end: number): number {
    if (!this.varint(p, end) || this.high !== 0 || this.low < 8) this.fail(FAULT_MALFORMED, p);
    return this.low;
  }

  /** Length of a length-delimited field at `next`; `from` is where a fault is reported. */
  lengthAt(end: number, from: number): number {
    if (!this.varint(this.next, end) || this.high !== 0 || this.low > end - this.next) this.fail(FAULT_MALFORMED, from);
    return this.low;
  }

  skipField(tag: number, end: number, from: number): void {
    if (!this.skip(tag, this.next, end, 0)) this.fail(FAULT_MALFORMED, from);
  }

  private skip(tag: number, p: number, end: number, depth: number): boolean {
    const wire = tag & 7;
    if (wire === 0) return this.varint(p, end);
    if (wire === 1 || wire === 5) {
      const bytes = wire === 1 ? 8 : 4;
      this.next = p + bytes;
      return end - p >= bytes;
    }
    if (wire === 2) {
      if (!this.varint(p, end) || this.high !== 0 || this.low > end - this.next) return false;
      this.next += this.low;
      return true;
    }
    if (wire !== 3) return false;
    while (depth < 100) {
      if (!this.varint(p, end) || this.high !== 0 || this.low < 8) return false;
      const inner = this.low;
      if ((inner & 7) === 4) return inner >>> 3 === tag >>> 3;
      if (!this.skip(inner, this.next, end, depth + 1)) return false;
      p = this.next;
    }
    return false;
  }

  /** Calls `wanted(tag, from, end)` for each length-delimited field, passes over the others. */
  eachField(p: number, end: number, wanted: (tag: number, from: number, behind: number, at: number) => void): void {
    while (p < end) {
      const tag = this.tagAt(p, end);
      if ((tag & 7) === 2) {
        const length = this.lengthAt(end, p);
        const from = this.next;
        wanted(tag, from, from + length, p);
        p = from + length;
      } else {
        this.skipField(tag, end, p);
        p = this.next;
      }
    }
  }

  /** Walks Example → Features → map entries; `entry` finds the entry in `keyAt` … `valueBytes`. */
  eachEntry(p: number, end: number, entry: (at: number) => void, other?: (tag: number, at: number) => void): void {
    this.eachField(p, end, (tag, from, behind, at) => {
      other?.(tag, at);
      if (tag !== 0x0a) return;
      this.eachField(from, behind, (inner, entryFrom, entryEnd, entryAt) => {
        if (inner !== 0x0a) return;
        this.keyAt = entryFrom;
        this.keyBytes = 0;
        this.valueAt = 0;
        this.valueBytes = 0;
        this.eachField(entryFrom, entryEnd, (part, partFrom, partEnd, partAt) => {
          if (part === 0x0a) {
            this.keyAt = partFrom;
            this.keyBytes = partEnd - partFrom;
          } else if (part === 0x12) {
            if (this.valueAt !== 0) this.fail(FAULT_MALFORMED, partAt);
            this.valueAt = partFrom;
            this.valueBytes = partEnd - partFrom;
          }
        });
        entry(entryAt);
      });
    });
  }

  same(a: number, b: number, length: number): boolean {
    for (let i = 0; i < length; i++) if (this.bytes[a + i] !== this.bytes[b + i]) return false;
    return true;
  }

  /** Calls `each` for every run of a list: a packed run, one unpacked value, or one string. */
  eachRun(kind: number, p: number, end: number, each: (from: number, behind: number) => void): void {
    const single = kind === KIND_INT64 ? 0x08 : kind === KIND_FLOAT ? 0x0d : 0x0a;
    while (p < end) {
      const tag = this.tagAt(p, end);
      let from = this.next;
      let behind: number;
      if (tag === 0x0a) {
        const length = this.lengthAt(end, p);
        from = this.next;
        behind = from + length;
      } else {
        this.skipField(tag, end, p);
        behind = this.next;
      }
      if (tag === 0x0a || tag === single) each(from, behind);
      p = behind;
    }
  }

  private u32(at: number): number {
    return this.view.getUint32(at, true);
  }

  private decodeFeature(plan: number, row: number, seen: Set<number>): void {
    const features = this.u32(plan);
    for (let f = 0; f < features; f++) {
      const feature = plan + PLAN_HEADER + f * PLAN_FEATURE;
      if (this.u32(feature + 4) !== this.keyBytes || !this.same(plan + this.u32(feature), this.keyAt, this.keyBytes))
        continue;
      const first = this.u32(feature + 8);
      for (let c = first; c < first + this.u32(feature + 12); c++) {
        const column = plan + PLAN_HEADER + features * PLAN_FEATURE + c * PLAN_COLUMN;
        this.column = this.u32(column + 12);
        const values = this.decodeColumn(column, row + this.u32(column + 8));
        // Of several features of one name the last one counts.
        if (values === 0 && this.u32(column + 24) !== 0) seen.delete(c);
        else seen.add(c);
      }
      this.column = -1;
      return;
    }
  }

  private decodeColumn(column: number, out: number): number {
    const storage = this.u32(column);
    const max = this.u32(column + 4);
    const wanted = storage === STORAGE_LENGTH ? 0 : storage === STORAGE_F32 ? KIND_FLOAT : KIND_INT64;
    const start = this.valueAt;
    let kind = 0;
    let count = 0;
    this.ones = 0;
    this.open = true;
    this.eachField(start, start + this.valueBytes, (tag, from, behind) => {
      const field = tag >>> 3;
      if (field > KIND_INT64) return;
      if (kind !== field) {
        kind = field;
        count = 0;
        this.ones = 0;
        this.open = true;
      }
      if (wanted !== 0 && wanted !== kind) return;
      this.eachRun(kind, from, behind, (p, end) => {
        count = this.append(storage, kind, p, end, out, count, max);
      });
    });
    if (kind !== 0 && wanted !== 0 && kind !== wanted) this.fail(FAULT_KIND, start, kind, wanted);
    if (count > max) this.cut = true;
    this.finish(column, out, Math.min(count, max));
    return count;
  }

  private append(
    storage: number,
    kind: number,
    p: number,
    end: number,
    out: number,
    count: number,
    max: number,
  ): number {
    if (kind === KIND_BYTES) return count + 1;
    if (kind === KIND_FLOAT) {
      if ((end - p) & 3) this.fail(FAULT_MALFORMED, p);
      const values = (end - p) >>> 2;
      const kept = storage === STORAGE_F32 ? Math.max(0, Math.min(values, max - count)) : 0;
      this.bytes.copyWithin(out + count * 4, p, p + kept * 4);
      return count + values;
    }
    while (p < end) {
      if (!this.varint(p, end)) this.fail(FAULT_MALFORMED, p);
      const { low, high } = this;
      if (storage === STORAGE_I32) {
        if (high !== (low >>> 31 ? 0xffffffff : 0)) this.fail(FAULT_RANGE, p, this.value());
        if (count < max) this.view.setUint32(out + count * 4, low, true);
      } else if (storage === STORAGE_I64) {
        if (count < max) {
          this.view.setUint32(out + count * 8, low, true);
          this.view.setUint32(out + count * 8 + 4, high, true);
        }
      } else if (storage === STORAGE_PREFIX) {
        if (high !== 0 || low > 1 || (low === 1 && !this.open)) this.fail(FAULT_NOT_PREFIX, p, this.value());
        if (low === 1) this.ones++;
        else this.open = false;
      }
      count++;
      p = this.next;
    }
    return count;
  }

  private finish(column: number, out: number, count: number): void {
    const storage = this.u32(column);
    const max = this.u32(column + 4);
    if (storage === STORAGE_PREFIX) this.view.setUint32(out, Math.min(this.ones, max), true);
    else if (storage === STORAGE_LENGTH) this.view.setUint32(out, count, true);
    else if (storage === STORAGE_I64) {
      const pad = this.view.getBigUint64(column + 16, true);
      for (let i = count; i < max; i++) this.view.setBigUint64(out + i * 8, pad, true);
    } else {
      const pad = this.u32(column + 16);
      for (let i = count; i < max; i++) this.view.setUint32(out + i * 4, pad, true);
    }
  }

  private padMissing(plan: number, row: number, seen: Set<number>): void {
    const first = plan + PLAN_HEADER + this.u32(plan) * PLAN_FEATURE;
    this.ones = 0;
    for (let c = 0; c < this.u32(plan + 4); c++) {
      const column = first + c * PLAN_COLUMN;
      if (seen.has(c)) continue;
      if (this.u32(column + 24) !== 0) {
        this.column = this.u32(column + 12);
        this.fail(FAULT_MISSING, this.recordAt, 0, 1);
      }
      this.finish(column, row + this.u32(column + 8), 0);
    }
  }
}
