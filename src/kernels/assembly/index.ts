// Kernels in AssemblyScript: plain functions over addresses, no objects, no static data (memory is shared between threads).
export { narrowInts } from "./columns";
export { crc32c } from "./crc";
export { decodedRows, decodeExamples, truncatedRows } from "./decode";
export { deltaEnd, unpackDelta } from "./delta";
export { digitsEnd, readDigits } from "./digits";
export { faultAt, faultCode, faultColumn, faultExpected, faultFound, faultRecord, faultRecordAt } from "./fault";
export { scanConsumed, scanCrc, scanFrames, scanNeeded } from "./frames";
export { unpackHybrid } from "./hybrid";
export { unshuffle } from "./shuffle";
export { statsExamples } from "./stats";
export { initTables, useTables } from "./tables";

/** Bytes [rowOffset, rowOffset + bytes) of n rows, one behind the other. */
export function gather(rows: usize, n: u32, rowOffset: usize, bytes: usize, out: usize): void {
  for (let i: u32 = 0; i < n; i++) {
    memory.copy(out, <usize>load<u32>(rows + (i << 2)) + rowOffset, bytes);
    out += bytes;
  }
}

/** Of the rows of the last `gatherHeads`: those in which a list was cut, and those that stand in for bad records. */
export let cutRows: u32 = 0;
export let replacedRows: u32 = 0;

/**
 * Headers of n rows (formats/types.ts) as a slot's identities, 32 bytes each: shard's key, record and token at 8, 16 and 24. What
 * else an identity holds is not of the row, and not written.
 */
export function gatherHeads(rows: usize, n: u32, out: usize): void {
  cutRows = 0;
  replacedRows = 0;
  for (let i: u32 = 0; i < n; i++) {
    const row = <usize>load<u32>(rows + (i << 2));
    v128.store(out, v128.load(row), 8);
    store<u32>(out, load<u32>(row, 16), 24);
    const flags = load<u32>(row, 20);
    cutRows += flags & 1;
    replacedRows += (flags >>> 1) & 1;
    out += 32;
  }
}

/** `bytes` at ptr + i · stride to `rowOffset` of row i of n; rows of address 0 are left out. */
export function scatter(rows: usize, n: u32, ptr: usize, stride: usize, rowOffset: usize, bytes: usize): void {
  for (let i: u32 = 0; i < n; i++) {
    const row = <usize>load<u32>(rows + (i << 2));
    if (row !== 0) memory.copy(row + rowOffset, ptr, bytes);
    ptr += stride;
  }
}
