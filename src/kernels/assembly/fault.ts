// The fault of the last call, as globals of this instance (so each thread has its own). Offsets are addresses here.
export let faultCode: i32 = 0;
export let faultRecord: u32 = 0;
export let faultRecordAt: usize = 0;
export let faultAt: usize = 0;
export let faultFound: i64 = 0;
export let faultExpected: i64 = 0;
/** Set before a column is decoded and back to -1 after it, so it is right when a fault stops the walk. */
export let faultColumn: i32 = -1;

export function clearFault(): void {
  faultCode = 0;
  faultColumn = -1;
}

export function inRecord(record: u32, at: usize): void {
  faultRecord = record;
  faultRecordAt = at;
}

export function inColumn(column: i32): void {
  faultColumn = column;
}

/** Notes a fault and returns 0, which is no address: callers hand it up. */
export function fault(code: i32, at: usize, found: i64, expected: i64): usize {
  faultCode = code;
  faultAt = at;
  faultFound = found;
  faultExpected = expected;
  return 0;
}
