/**
 * Clocks: how long each stage of a group worked or waited, from the first day. Counters only grow; a reader takes
 * differences. Times are nanoseconds as numbers (2^53 ns is 104 days of work in one stage).
 */
export interface StageClocks {
  /** Bytes asked from storage and delivered. */
  readBytes: number;
  reads: number;
  /** Of `reads`, those that fetched a few records through restart offsets. */
  smallReads: number;
  /** Sum over reads, issue to arrival. */
  readNs: number;
  decodedRows: number;
  decodeNs: number;
  truncatedRows: number;
  /** Rows in which another record stands in for a bad one, each time it was decoded. */
  replacedRows: number;
  /** Distinct bad records that were replaced in this run, on all nodes as far as the ledger told. */
  badRecords: number;
  batches: number;
  rows: number;
  /** Copying rows into slots. */
  gatherNs: number;
  /** Sum over sessions: no slot was free, the trainer is slower than the feed. */
  waitTrainerNs: number;
  /** Sum over sessions: a slot was free and rows were missing. */
  waitFeedNs: number;
}

export function newClocks(): StageClocks {
  return {
    readBytes: 0,
    reads: 0,
    smallReads: 0,
    readNs: 0,
    decodedRows: 0,
    decodeNs: 0,
    truncatedRows: 0,
    replacedRows: 0,
    badRecords: 0,
    batches: 0,
    rows: 0,
    gatherNs: 0,
    waitTrainerNs: 0,
    waitFeedNs: 0,
  };
}

export function nowNs(): number {
  return performance.now() * 1e6;
}
