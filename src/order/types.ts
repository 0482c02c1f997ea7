/**
 * Order: the pure function (view, seed, order options) → endless sequence of samples (design §4.4).
 * Nothing here knows of files, sockets, memory limits or clocks.
 */

export type ShuffleMode = "window" | "global" | "none";
export type LastRule = "carry" | "drop" | "pad";

/** What the order needs to know of a view. Samples are numbered 0 … samples − 1 in file order. */
export interface OrderView {
  /** View fingerprint, 32 hex digits. */
  fingerprint: string;
  samples: number;
  /** Bytes of all blocks (decompressed for streams: bytes as stored). */
  bytes: number;
  /** Blocks of all shards; a stream counts as one. */
  blocks: number;
  /** Largest sample count of one block. */
  largestBlock: number;
  /** Nominal row bytes: Σ over delivered columns of max_length × 4. */
  rowBytes: number;
  /** Some shard is a stream without seek points (gzip, zlib): random reads are impossible. @default false */
  streams?: boolean;
}

/** Extents in file order, as columns. Extent x holds samples [sampleStart[x], sampleStart[x + 1]). */
export interface ExtentTable {
  count: number;
  shard: Uint32Array;
  firstBlock: Uint32Array;
  blocks: Uint32Array;
  sampleStart: Float64Array;
}

/** What a user may set. */
export interface OrderOptions {
  seed: bigint;
  /** @default "window" */
  shuffle?: ShuffleMode;
  /** Bytes of all windows of the job together. @default 1 GiB */
  shuffleMemory?: number;
  /** Overrides the number of lanes. */
  lanes?: number;
  /** Overrides the window, in samples. */
  window?: number;
  /** "shard": whole shards are permuted (HSM, hydration). @default "extent" */
  unit?: "extent" | "shard";
  /** @default "carry" */
  last?: LastRule;
  /** Samples of one optimizer batch (G): dp world size × batch size × accumulation. */
  globalBatch: number;
  /** Position at which the segment begins. @default 0 */
  from?: number;
}

/** Options after resolution: what is written into the state. */
export interface ResolvedOrder {
  seed: bigint;
  shuffle: ShuffleMode;
  /** True when a window order was resolved to `global` because the whole view fits: decoded once and held. */
  held: boolean;
  lanes: number;
  window: number;
  /** Blocks in one extent (0 = whole shards). */
  extentBlocks: number;
  last: LastRule;
  globalBatch: number;
  from: number;
}

/** One source of a segment; `view` is the number of its entry in `OrderState.sources`. */
export interface SegmentSource {
  view: number;
  /** Of 65536. */
  weight: number;
  /** Rows of the source that each lane had delivered when the segment began. */
  offset: number[];
}

/** State v1: JSON, 64-bit integers as decimal strings. The same on all ranks. */
export interface OrderState {
  version: 1;
  seed: string;
  /** Samples delivered globally since the run began. */
  position: string;
  sources: { name: string; view: string; samples: string }[];
  segments: {
    from: string;
    sources: SegmentSource[];
    L: number;
    window: number;
    /** Blocks an extent; 0 = whole shards. */
    extent: number;
    shuffle: ShuffleMode;
    last: LastRule;
    G: number;
  }[];
}

/** Where one position of the sequence lies. */
export interface Located {
  epoch: number;
  lane: number;
  /** Row in the lane. */
  row: number;
  /** Sample number in file order. */
  sample: number;
}
