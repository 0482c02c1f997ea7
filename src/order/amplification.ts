/**
 * Amplification: what an order costs the storage when it is dealt to nodes (design §4.4.7), from a description.
 *
 * A lane's row r is position r·L + l, and which rank owns it repeats with the period of lcm(S, L) positions:
 * `laneNodes` computes that table once. An extent is then a stretch of lane rows, shuffled inside windows. Where
 * every lane belongs to one node all extents are counted; else a strided sample of them is walked, window by
 * window with the order's own permutations (`sampled` says how many).
 *
 * @example
 * const { readers, mergedShare } = simulate(order, bytes, { world: 128, ranksPerNode: 8, batch: 8 });
 */
import { READ_BYTES, READ_MOST } from "./residency.ts";
import { owner } from "./deal.ts";
import { quotient } from "./epochs.ts";
import type { SourceOrder } from "./source-order.ts";

export interface Topology {
  /** Data-parallel world size. */
  world: number;
  ranksPerNode: number;
  /** Samples a rank gets in one step. */
  batch: number;
}

export interface Amplification {
  /** Nodes that read an extent: mean and most. */
  readers: number;
  mostReaders: number;
  /** Extents walked for `readers`; all, or a strided sample. */
  sampled: number;
  /** Bytes of all nodes' reads in an epoch / bytes of the set. */
  bytesRatio: number;
  /** Reads of all nodes in an epoch. */
  reads: number;
  /** Share of the bytes in merged reads of at least 8 MiB. */
  mergedShare: number;
  /** Distinct extents and shards that the first 1 % of an epoch touches (whole windows, as they are read). */
  firstExtents: number;
  firstShards: number;
  /** Distinct shards that node 0 reads in an epoch. */
  shardsOfFirstNode: number;
}

/** Phases of a lane kept; a longer period (an odd step size) is looked at in its first part. */
const MAX_PHASES = 512;
/** Window rows that may be permuted in one simulation: about half a second. */
const ROW_BUDGET = 6_000_000;
const MOST_WALKED = 4096;

export interface LaneNodes {
  /** Rows after which a lane's nodes repeat. */
  phases: number;
  /** Node of row r of lane l: nodes[l · phases + r mod phases]. */
  nodes: Uint32Array;
  /** Distinct nodes of each lane. */
  distinct: Uint32Array;
}

/** Which node serves which row of each lane, for steps of S = world × batch positions. */
export function laneNodes(lanes: number, { world, ranksPerNode, batch }: Topology): LaneNodes {
  const step = world * batch;
  const phases = Math.min(step / gcd(step, lanes), MAX_PHASES);
  const nodes = new Uint32Array(lanes * phases);
  const distinct = new Uint32Array(lanes);
  const seen = new Set<number>();
  for (let lane = 0; lane < lanes; lane++) {
    seen.clear();
    for (let row = 0; row < phases; row++) {
      const position = row * lanes + lane;
      // An endless pass: the borders of passes are one step each and do not matter here.
      const start = position - (position % step);
      const node = quotient(
        owner([{ a: start, b: start + step, base: 0, lanes }], position, step, world),
        ranksPerNode,
      );
      nodes[lane * phases + row] = node;
      seen.add(node);
    }
    distinct[lane] = seen.size;
  }
  return { phases, nodes, distinct };
}

/** Mean nodes of a lane: what an extent costs at most, borders of lanes apart. */
export function nodesPerLane(lanes: number, topology: Topology): number {
  const { distinct } = laneNodes(lanes, topology);
  return distinct.reduce((a, b) => a + b, 0) / lanes;
}

/** `bytes`: stored bytes of each extent. Looks at the first epoch. */
export function simulate(order: SourceOrder, bytes: Float64Array, topology: Topology): Amplification {
  const { extents, resolved, lanes } = order;
  const nodeCount = Math.ceil(topology.world / topology.ranksPerNode);
  const table = laneNodes(lanes, topology);
  const walk = new Walk(order, table);
  const layout = order.layout(0);
  const simple = table.distinct.every((count) => count === 1);
  const most = simple ? extents.count : Math.min(MOST_WALKED, Math.max(16, quotient(ROW_BUDGET, 2 * resolved.window)));
  const stride = Math.max(1, Math.ceil(extents.count / most));

  let sampled = 0;
  let readersSum = 0;
  let mostReaders = 0;
  let sampledBytes = 0;
  let readBytes = 0;
  let total = 0;
  let merged = 0;
  let reads = 0;
  const shardSeen = new Uint8Array(shardCount(order));
  let shardsOfFirstNode = 0;
  const nodes = new Set<number>();
  const laneStart = Float64Array.from({ length: lanes + 1 }, (_, l) =>
    l === lanes ? order.samples : order.laneStart(l),
  );
  let lane = 0;
  for (let rank = 0; rank < extents.count; rank++) {
    const x = layout.extentAt(rank);
    const start = layout.start(rank);
    const samples = extents.sampleStart[x + 1]! - extents.sampleStart[x]!;
    const size = bytes[x]!;
    total += size;
    if (samples === 0) continue;
    const walked = rank % stride === 0;
    if (walked) nodes.clear();
    for (let at = start; at < start + samples;) {
      while (laneStart[lane + 1]! <= at) lane++;
      const end = Math.min(start + samples, laneStart[lane + 1]!);
      const part = (size * (end - at)) / samples;
      if (part >= READ_BYTES) merged += part;
      reads += Math.ceil(part / READ_MOST);
      if (walked) walk.add(nodes, lane, at - laneStart[lane]!, end - laneStart[lane]!);
      if (table.nodes[lane * table.phases] === 0 && shardSeen[extents.shard[x]!] === 0) {
        shardSeen[extents.shard[x]!] = 1;
        shardsOfFirstNode++;
      }
      at = end;
    }
    if (walked) {
      sampled++;
      readersSum += nodes.size;
      mostReaders = Math.max(mostReaders, nodes.size);
      sampledBytes += size;
      readBytes += size * nodes.size;
    }
  }
  const readers = readersSum / Math.max(sampled, 1);
  const first = firstPercent(order);
  return {
    readers,
    mostReaders: Math.min(mostReaders, nodeCount),
    sampled,
    bytesRatio: sampledBytes === 0 ? 1 : readBytes / sampledBytes,
    reads: Math.round(reads * readers),
    mergedShare: total === 0 ? 0 : merged / total,
    firstExtents: first.extents,
    firstShards: first.shards,
    shardsOfFirstNode,
  };
}

/** The nodes that want some row of a stretch of a lane. */
class Walk {
  readonly #order: SourceOrder;
  readonly #table: LaneNodes;

  constructor(order: SourceOrder, table: LaneNodes) {
    this.#order = order;
    this.#table = table;
  }

  /** Laid rows [from, to) of a lane. */
  add(into: Set<number>, lane: number, from: number, to: number): void {
    const { phases, nodes, distinct } = this.#table;
    if (distinct[lane] === 1) {
      into.add(nodes[lane * phases]!);
      return;
    }
    const { window } = this.#order.resolved;
    const laneRows = this.#order.laneRows(lane);
    // Windows that lie wholly inside: all their rows are wanted, in whatever order.
    const inner = Math.ceil(from / window) * window;
    const outer = to === laneRows ? to : quotient(to, window) * window;
    if (inner < outer) this.#rows(into, lane, inner, outer);
    if (outer - inner >= phases) return; // all nodes of the lane are there
    if (from < inner) this.#shuffled(into, lane, from, Math.min(to, inner));
    if (outer < to && outer >= inner) this.#shuffled(into, lane, outer, to);
  }

  #rows(into: Set<number>, lane: number, from: number, to: number): void {
    const { phases, nodes } = this.#table;
    for (let row = from; row < Math.min(to, from + phases); row++) into.add(nodes[lane * phases + (row % phases)]!);
  }

  #shuffled(into: Set<number>, lane: number, from: number, to: number): void {
    const { phases, nodes } = this.#table;
    const { firstRow, rows, perm } = this.#order.window(0, lane, quotient(from, this.#order.resolved.window));
    for (let i = 0; i < rows; i++) {
      const laid = firstRow + perm[i]!;
      if (laid >= from && laid < to) into.add(nodes[lane * phases + ((firstRow + i) % phases)]!);
    }
  }
}

function firstPercent(order: SourceOrder): { extents: number; shards: number } {
  const { window, shuffle } = order.resolved;
  const extents = new Set<number>();
  const layout = order.layout(0);
  for (let lane = 0; lane < order.lanes; lane++) {
    const rows = order.laneRows(lane);
    if (rows === 0) continue;
    const served = Math.max(Math.ceil(rows / 100), 1);
    const read = shuffle === "none" ? served : Math.min(Math.ceil(served / window) * window, rows);
    const start = order.laneStart(lane);
    const last = layout.rankOf(start + read - 1);
    for (let rank = layout.rankOf(start); rank <= last; rank++) extents.add(layout.extentAt(rank));
  }
  const shards = new Set<number>();
  for (const x of extents) shards.add(order.extents.shard[x]!);
  return { extents: extents.size, shards: shards.size };
}

function shardCount(order: SourceOrder): number {
  let most = 0;
  for (const shard of order.extents.shard) if (shard >= most) most = shard + 1;
  return most;
}

function gcd(a: number, b: number): number {
  return b === 0 ? a : gcd(b, a % b);
}
