/**
 * The plan of decodeExamples: wanted columns, grouped by feature, as bytes (layout: kernels/assembly/layout.ts).
 *
 * @example
 * const bytes = encodePlan([{ name: "ids", feature: "input_ids", storage: "i32", maxLength: 512, pad: "0", rowOffset: 32, rowBytes: 2048 }]);
 */
import { PLAN_COLUMN, PLAN_FEATURE, PLAN_HEADER, PLAN_MAX_COLUMNS } from "../../kernels/assembly/layout.ts";
import { ROW_HEADER_BYTES, STORAGE, type StoredColumn } from "../types.ts";

/** Throws RangeError for columns that contradict themselves: a mistake of the caller, not of the data. */
export function encodePlan(columns: readonly StoredColumn[]): Uint8Array {
  if (columns.length === 0 || columns.length > PLAN_MAX_COLUMNS) {
    throw new RangeError(`a plan takes 1 to ${PLAN_MAX_COLUMNS} columns, got ${columns.length}`);
  }
  const byFeature = new Map<string, number[]>();
  columns.forEach((column, number) => {
    check(column);
    const group = byFeature.get(column.feature);
    if (group === undefined) byFeature.set(column.feature, [number]);
    else group.push(number);
  });
  const names = [...byFeature.keys()].map((name) => new TextEncoder().encode(name));
  const columnsAt = PLAN_HEADER + names.length * PLAN_FEATURE;
  let nameAt = columnsAt + columns.length * PLAN_COLUMN;
  const bytes = new Uint8Array(nameAt + names.reduce((sum, name) => sum + name.length, 0));
  const view = new DataView(bytes.buffer);
  view.setUint32(0, names.length, true);
  view.setUint32(4, columns.length, true);
  let slot = 0;
  [...byFeature.values()].forEach((numbers, f) => {
    const name = names[f]!;
    const at = PLAN_HEADER + f * PLAN_FEATURE;
    view.setUint32(at, nameAt, true);
    view.setUint32(at + 4, name.length, true);
    view.setUint32(at + 8, slot, true);
    view.setUint32(at + 12, numbers.length, true);
    bytes.set(name, nameAt);
    nameAt += name.length;
    for (const number of numbers) encodeColumn(view, columnsAt + slot++ * PLAN_COLUMN, columns[number]!, number);
  });
  return bytes;
}

function encodeColumn(view: DataView, at: number, column: StoredColumn, number: number): void {
  view.setUint32(at, STORAGE[column.storage], true);
  view.setUint32(at + 4, column.maxLength, true);
  view.setUint32(at + 8, column.rowOffset, true);
  view.setUint32(at + 12, number, true);
  view.setUint32(at + 24, column.required === true ? 1 : 0, true);
  if (column.storage === "i32") view.setInt32(at + 16, Number(column.pad), true);
  if (column.storage === "i64") view.setBigInt64(at + 16, BigInt(column.pad), true);
  if (column.storage === "f32") view.setFloat32(at + 16, Number(column.pad), true);
}

function check({ name, storage, maxLength, pad, rowOffset, rowBytes }: StoredColumn): void {
  const refuse = (rule: string): never => {
    throw new RangeError(`column ${JSON.stringify(name)}: ${rule}`);
  };
  if (!Number.isInteger(maxLength) || maxLength < 1 || maxLength > 2 ** 28)
    refuse(`maxLength must be from 1 to 2^28, got ${maxLength}`);
  const need = storage === "i64" ? maxLength * 8 : storage === "i32" || storage === "f32" ? maxLength * 4 : 4;
  if (rowBytes < need) refuse(`needs ${need} bytes in the row, got ${rowBytes}`);
  if (rowOffset < ROW_HEADER_BYTES || rowOffset % 8 !== 0)
    refuse(`rowOffset must be a multiple of 8 from ${ROW_HEADER_BYTES}, got ${rowOffset}`);
  if (storage === "f32" ? Number.isNaN(Number(pad)) && pad !== "NaN" : !/^-?\d+$/.test(pad))
    refuse(`pad is no number: ${pad}`);
  const wide = storage === "f32" ? 0n : BigInt(pad);
  const bits = storage === "i32" ? 32 : 64;
  if (wide !== BigInt.asIntN(bits, wide)) refuse(`pad ${pad} does not fit ${storage}`);
}
