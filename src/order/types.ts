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

/** What a user may set for each source. */
export interface SourceOptions {
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
}

/** What a user may set for a run of one source. */
export interface OrderOptions extends SourceOptions {
  /** @default "carry" */
  last?: LastRule;
  /** Samples of one optimizer batch (G): dp world size × batch size × accumulation. */
  globalBatch: number;
  /** Position at which the segment begins. @default 0 */
  from?: number;
}

/** How one source is resolved: what the state holds of it. */
export interface ResolvedSource {
  seed: bigint;
  shuffle: ShuffleMode;
  /** True when a window order was resolved to `global` because the whole view fits: decoded once and held. */
  held: boolean;
  lanes: number;
  window: number;
  /** Blocks in one extent (0 = whole shards). */
  extentBlocks: number;
}

/** The order of one source by itself. */
export interface ResolvedOrder extends ResolvedSource {
  last: LastRule;
  globalBatch: number;
  from: number;
}

/** What of a view decides where its rows lie. */
export interface Shape {
  samples: number;
  lanes: number;
}

/** A source of the run: one view. A source that shards were appended to is two of the same name. */
export interface SourceEntry extends Shape {
  name: string;
  /** View fingerprint. */
  view: string;
  window: number;
  /** 0 = whole shards. */
  extentBlocks: number;
  shuffle: ShuffleMode;
}

/** From a position on to the next segment's. */
export interface Segment {
  from: number;
  /** Numbers of sources. */
  sources: number[];
  /** Of 65536, one a source. */
  weights: number[];
  /** L of the run. */
  lanes: number;
  last: LastRule;
  /** G */
  globalBatch: number;
}

/** State v1: JSON, 64-bit integers as decimal strings. The same on all ranks. */
export interface OrderState {
  version: 1;
  seed: string;
  /** Samples delivered globally since the run began. */
  position: string;
  sources: {
    name: string;
    view: string;
    samples: string;
    L: number;
    window: number;
    /** Blocks an extent; 0 = whole shards. */
    extent: number;
    shuffle: ShuffleMode;
  }[];
  segments: {
    from: string;
    sources: number[];
    weights: number[];
    L: number;
    last: LastRule;
    G: number;
  }[];
}

/** Where one position of the sequence lies. */
export interface Located {
  /** Number of the source. */
  source: number;
  pass: number;
  lane: number;
  /** Row in the lane. */
  row: number;
}
