/**
 * What the index learns of the features of a shard: a table in kernel memory that `statsExamples` folds records into,
 * and that grows by the names which records bring.
 *
 * @example
 * const features = new FeatureTable(workspace, object.uri);
 * features.fold(batch, 0, batch.records);
 * features.schema();
 */
import { AthanorError } from "../../base/errors.ts";
import {
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
} from "../../kernels/assembly/layout.ts";
import { FAULT, type KernelFault } from "../../kernels/kernels.ts";
import { Unsupported } from "../errors.ts";
import type { Field, Schema, ValueKind } from "../types.ts";
import { readExample, PayloadFault } from "./example.ts";
import { faultError } from "./faults.ts";
import type { Batch, Workspace } from "./frames.ts";

const KINDS: readonly (ValueKind | undefined)[] = [undefined, "bytes", "float", "int64"];

export class FeatureTable {
  private readonly workspace: Workspace;
  private readonly file: string;
  private readonly names: string[] = [];
  private bad = 0;
  private readonly onBad: ((fault: AthanorError) => void) | undefined;

  /** `onBad`: is told of bad records, which are then passed over; without it the first one is thrown. */
  constructor(workspace: Workspace, file: string, onBad?: (fault: AthanorError) => void) {
    this.workspace = workspace;
    this.file = file;
    this.onBad = onBad;
    this.view().setBigUint64(workspace.table, 0n, true);
  }

  /** Folds records [from, to) of a batch. Throws at the first one that is no Example or contradicts the others. */
  fold(batch: Batch, from: number, to: number): void {
    const { kernels, offsets, lengths, table } = this.workspace;
    if (batch.fault !== undefined && from < to) return this.pass(batch.fault);
    for (let at = from; at < to;) {
      const { records, fault } = kernels.statsExamples(batch.base, offsets + at * 4, lengths + at * 4, to - at, table);
      if (fault === undefined) return;
      at += records;
      try {
        if (fault.code !== FAULT.unknownFeature) throw this.error(batch, at, fault);
        this.learn(batch, at, fault);
      } catch (error) {
        this.pass(error);
        at++;
      }
    }
  }

  /** Values seen so far of each feature, in the order of their first appearance; int64 only, others 0. */
  int64Values(): number[] {
    const view = this.view();
    return this.names.map((_, f) => {
      const entry = this.entry(f);
      return view.getUint32(entry + STATS_KIND, true) === KIND_INT64
        ? Number(view.getBigUint64(entry + STATS_VALUES, true))
        : 0;
    });
  }

  /** Number (in the order of `int64Values`) of the token column: the int64 feature with most values, by name if equal; -1: none. */
  tokenColumn(): number {
    const values = this.int64Values();
    let best = -1;
    for (const f of this.byName()) if (values[f]! > (best < 0 ? 0 : values[best]!)) best = f;
    return best;
  }

  /** Features that held a list at least once, by name. */
  schema(): Schema {
    const view = this.view();
    const u64 = (at: number): number => Number(view.getBigUint64(at, true));
    const fields: Field[] = [];
    for (const f of this.byName()) {
      const entry = this.entry(f);
      const kind = KINDS[view.getUint32(entry + STATS_KIND, true)];
      if (kind === undefined) continue;
      const field: Field = {
        name: this.names[f]!,
        kind,
        present: u64(entry + STATS_PRESENT),
        minLength: u64(entry + STATS_MIN_LENGTH),
        maxLength: u64(entry + STATS_MAX_LENGTH),
        values: u64(entry + STATS_VALUES),
      };
      if (kind === "int64") {
        field.prefixMask = field.values > 0 && view.getUint32(entry + STATS_PREFIX, true) === 1;
        if (field.values > 0) {
          field.min = view.getBigInt64(entry + STATS_MIN, true).toString();
          field.max = view.getBigInt64(entry + STATS_MAX, true).toString();
        }
      }
      fields.push(field);
    }
    return this.bad === 0 ? { fields } : { fields, bad: this.bad };
  }

  /** What another format is, or a defect, is no bad record. */
  private pass(fault: unknown): void {
    if (this.onBad === undefined || !(fault instanceof AthanorError) || fault instanceof Unsupported) throw fault;
    this.bad++;
    this.onBad(fault);
  }

  private view(): DataView {
    return new DataView(this.workspace.kernels.memory.buffer);
  }

  private entry(f: number): number {
    return this.workspace.table + STATS_HEADER + f * STATS_ENTRY;
  }

  // By code units: the same on every machine, whatever its locale.
  private byName(): number[] {
    const names = this.names;
    return names.map((_, f) => f).sort((a, b) => (names[a]! < names[b]! ? -1 : 1));
  }

  private error(batch: Batch, at: number, fault: KernelFault): Error {
    // The kernel counted from the first record of its call.
    return faultError(
      { ...fault, record: 0 },
      {
        file: this.file,
        firstRecord: batch.firstRecord + at,
        fileOffset: batch.offset,
        feature: fault.column < 0 ? undefined : this.names[fault.column],
      },
    );
  }

  /** Adds the names of one record to the table. */
  private learn(batch: Batch, at: number, fault: KernelFault): void {
    const { kernels, offsets, lengths } = this.workspace;
    const view = this.view();
    const offset = batch.base + view.getUint32(offsets + at * 4, true);
    const payload = new Uint8Array(kernels.memory.buffer).slice(
      offset,
      offset + view.getUint32(lengths + at * 4, true),
    );
    let names: string[];
    try {
      names = [...readExample(payload).keys()];
    } catch (error) {
      if (!(error instanceof PayloadFault)) throw error;
      const code = error.sequenceExample ? FAULT.sequenceExample : FAULT.malformed;
      throw this.error(batch, at, { ...fault, code, offset: offset - batch.base + error.offset });
    }
    const known = new Set(this.names);
    for (const name of names) if (!known.has(name)) this.names.push(name);
    this.write(batch, at, fault);
  }

  // Entries lie in front, names behind them: with more entries the names are written anew.
  private write(batch: Batch, at: number, fault: KernelFault): void {
    const { kernels, table, tableBytes } = this.workspace;
    const view = this.view();
    const encoded = this.names.map((name) => new TextEncoder().encode(name));
    let nameAt = STATS_HEADER + encoded.length * STATS_ENTRY;
    const total = nameAt + encoded.reduce((sum, name) => sum + name.length, 0);
    if (total > tableBytes) {
      throw new Unsupported(
        `the shard has ${encoded.length} features or more, at most about ${Math.floor(tableBytes / 128)} are read`,
        { file: this.file, record: batch.firstRecord + at, byteOffset: batch.offset + fault.recordOffset },
        "store wide records as lists under few names",
      );
    }
    const before = view.getUint32(table, true);
    const bytes = new Uint8Array(kernels.memory.buffer);
    encoded.forEach((name, f) => {
      const entry = this.entry(f);
      if (f >= before) {
        bytes.fill(0, entry, entry + STATS_ENTRY);
        view.setUint32(entry + STATS_PREFIX, 1, true);
        view.setBigInt64(entry + STATS_MIN, 2n ** 63n - 1n, true);
        view.setBigInt64(entry + STATS_MAX, -(2n ** 63n), true);
      }
      view.setUint32(entry + STATS_NAME, nameAt, true);
      view.setUint32(entry + STATS_NAME_BYTES, name.length, true);
      bytes.set(name, table + nameAt);
      nameAt += name.length;
    });
    view.setUint32(table, encoded.length, true);
  }
}
