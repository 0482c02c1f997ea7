/**
 * Bill: what an epoch costs the file system, in the calls that it counts: opens, closes, sizes asked, reads and their bytes, beside
 * what the same samples cost by random access. For one node; pure, from the numbers of a plan.
 *
 * The rules are those seen on a running file system: an open and a close are a question each to its metadata server; a size asked of an
 * open file behind a read is answered by the lock that came with it; random access is one read of whole 4 KiB pages a sample, whatever
 * the API. Shards stay open while they are among the last used: a set of more shards than that is opened again, extent by extent.
 *
 * @example
 * const { laterEpochs, random } = billOf({ shards: 1000, ofNode: 125, visits: 500, reads: 13_000, bytes, samples, recordBytes, ... });
 * random.reads / laterEpochs.reads; // 2,100: how many times as many reads
 */

export interface BillData {
  /** Shards of the set, and those that the node reads in an epoch. */
  shards: number;
  ofNode: number;
  /** Extents that the node reads in an epoch: each may open its shard again. */
  visits: number;
  reads: number;
  bytes: number;
  /** Samples that the node delivers in an epoch. */
  samples: number;
  /** Mean stored bytes of a sample. */
  recordBytes: number;
  /** Rows stay in memory: later epochs read nothing. */
  held: boolean;
  /** Files that stay open. */
  handles: number;
}

export interface EpochBill {
  /** Of shards, and of the index's block tables. */
  opens: number;
  tables: number;
  /** Opens and closes. */
  metadata: number;
  /** Sizes asked: at each open, and of open files behind each read. */
  stats: number;
  reads: number;
  readBytes: number;
  bytes: number;
}

export interface Bill {
  firstEpoch: EpochBill;
  /** As they are in the long run. */
  laterEpochs: EpochBill;
  /** Metadata calls a thousand samples, in the long run. */
  metadataPerThousand: number;
  readsPerThousand: number;
  /** The same samples, each read alone. */
  random: { reads: number; readBytes: number; bytes: number; timesTheReads: number };
}

/** A cap on opens: that of the whole job, a second, and what a node has at once. */
export interface OpensCap {
  perSecond: number;
  burst: number;
}

export interface CappedOpens extends OpensCap {
  /** Of a node, a second. */
  share: number;
  /** Opens of a node before its first batch, and what they wait for the cap in all. */
  startOpens: number;
  startSeconds: number;
  /** The least that the opens of a first epoch take. */
  epochSeconds: number;
}

/** What the cap means for a node of `nodes`. `opensOfEpoch`: of shards and tables. */
export function cappedOpens(cap: OpensCap, nodes: number, startOpens: number, opensOfEpoch: number): CappedOpens {
  const share = cap.perSecond / nodes;
  const waits = (opens: number): number => Math.max(0, opens - cap.burst) / share;
  return { ...cap, share, startOpens, startSeconds: waits(startOpens), epochSeconds: waits(opensOfEpoch) };
}

const PAGE = 4096;
/** A random read of a large record goes over the wire in pieces of so many bytes. */
const REQUEST = 4 * 1024 * 1024;

export function billOf(data: BillData): Bill {
  const { shards, ofNode, visits, reads, bytes, samples, recordBytes, held, handles } = data;
  // Block tables are read once in an agent's life, and stay open beside the shards until then.
  const again = Math.max(0, visits - ofNode) * missed(handles / 2, ofNode);
  const firstEpoch = epoch(ofNode + again, ofNode, reads, bytes);
  const laterEpochs = held
    ? epoch(0, 0, 0, 0)
    : epoch(Math.max(visits, ofNode) * missed(handles, shards), 0, reads, bytes);
  // Records that divide a page lie in one; others reach into the next with some chance.
  const pages = PAGE % recordBytes === 0 ? 1 : 1 + (recordBytes - 1) / PAGE;
  const single = { reads: samples * Math.max(1, Math.ceil(recordBytes / REQUEST)), bytes: samples * pages * PAGE };
  const perThousand = 1000 / Math.max(samples, 1);
  return {
    firstEpoch,
    laterEpochs,
    metadataPerThousand: laterEpochs.metadata * perThousand,
    readsPerThousand: laterEpochs.reads * perThousand,
    random: {
      ...single,
      readBytes: single.bytes / Math.max(single.reads, 1),
      timesTheReads: single.reads / Math.max(reads, 1),
    },
  };
}

/** Chance that a file that is read again was closed meanwhile. */
function missed(kept: number, files: number): number {
  return files <= kept ? 0 : 1 - kept / files;
}

function epoch(opens: number, tables: number, reads: number, bytes: number): EpochBill {
  const rounded = Math.round(opens);
  const all = rounded + tables;
  return {
    opens: rounded,
    tables,
    metadata: 2 * all,
    stats: all + Math.ceil(reads),
    reads: Math.ceil(reads),
    readBytes: bytes / Math.max(reads, 1),
    bytes,
  };
}
