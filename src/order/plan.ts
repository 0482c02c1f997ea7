/**
 * Plan: what a training job will cost the storage and its nodes, before it runs. Numbers only, from the totals and the
 * extents of a view; nothing is read.
 *
 * @example
 * const plan = makePlan({ ...data, resolved }, { ranks: 128, nodes: 16, batch: 8, gradAccum: 1 });
 * plan.node.opens;        // shards that a node opens in an epoch
 */
import { billOf, cappedOpens, type Bill, type CappedOpens, type OpensCap } from "./bill.ts";
import { laneNodes, nodesPerLane, simulate, type Topology } from "./amplification.ts";
import { quotient } from "./epochs.ts";
import { OrderOption } from "./errors.ts";
import { Order } from "./order.ts";
import type { SourceOrder } from "./source-order.ts";
import { rawBytes, READ_BYTES, READ_MOST, residentRows, slotsOf } from "./residency.ts";
import type { ExtentTable, OrderView, ResolvedOrder } from "./types.ts";

export interface PlanData {
  view: OrderView;
  resolved: ResolvedOrder;
  extents: ExtentTable;
  /** Stored bytes of each extent. */
  extentBytes: Float64Array;
  shards: number;
  /** Files that an agent keeps open. */
  handles: number;
  /** Opens that the job may make a second, and a node at once; undefined: as many as it likes. */
  opensCap?: OpensCap | undefined;
  /** Bytes of a row in the window, header included, and in a slot. */
  storedRowBytes: number;
  slotRowBytes: number;
}

export interface PlanJob {
  /** Data-parallel world size, over `nodes` equal nodes. */
  ranks: number;
  nodes: number;
  batch: number;
  gradAccum: number;
  /** Milliseconds of one step (one `next()` on all ranks). */
  stepMs?: number;
}

export interface Plan {
  data: { shards: number; bytes: number; samples: number; blocks: number; recordBytes: number };
  order: {
    shuffle: string;
    held: boolean;
    lanes: number;
    window: number;
    extents: number;
    extentBytes: number;
    /** Samples that are shuffled together at any moment: lanes × window. */
    shuffleWindow: number;
    globalBatch: number;
    steps: number;
    optimizerSteps: number;
  };
  /** The node that has the most to do. */
  node: {
    lanes: number;
    memory: { rows: number; raw: number; slots: number; total: number };
    opens: number;
    bytes: number;
    reads: number;
    readBytes: number;
    /** Share of the bytes in merged reads of at least 8 MiB. */
    mergedShare: number;
  };
  /** What an epoch costs the file system, for the node that reads lane 0. */
  bill: Bill;
  /** What the cap on opens means for a node. */
  capped?: CappedOpens;
  storage: {
    /** Nodes that read an extent: mean and most. */
    readers: number;
    mostReaders: number;
    bytes: number;
    opens: number;
    firstPercent: { extents: number; shards: number };
  };
  /** With `stepMs`: an epoch's seconds, and what a node must read meanwhile. */
  epoch?: { seconds: number; samplesPerSecond: number; nodeBytesPerSecond: number };
  betterLanes?: { lanes: number; readers: number };
  notes: string[];
}

/** A single row is fetched from the restart offset before it: up to this many records. */
const RESTART_EVERY = 64;
const GOOD = 1.1;

export function makePlan(data: PlanData, job: PlanJob): Plan {
  const { view, resolved, extents, shards } = data;
  const { ranks, nodes, batch, gradAccum, stepMs } = job;
  for (const [name, value] of Object.entries({ ranks, nodes, batch, gradAccum })) {
    if (!Number.isSafeInteger(value) || value < 1)
      throw new OrderOption(`${name} must be a whole number ≥ 1, found ${value}`);
  }
  if (ranks % nodes !== 0) {
    throw new OrderOption(
      `ranks must be a multiple of nodes: found ${ranks} ranks on ${nodes} nodes`,
      {},
      "give the ranks of all nodes together",
    );
  }
  const step = ranks * batch;
  if (resolved.globalBatch !== step * gradAccum) {
    throw new OrderOption(
      `the optimizer batch of the order is ${resolved.globalBatch}, that of the job ${step * gradAccum}`,
    );
  }
  const topology: Topology = { world: ranks, ranksPerNode: ranks / nodes, batch };
  const order = Order.single(view, extents, resolved);
  const cost = costs(data, order.source(0), topology, nodes);
  const steps = order.steps(0, step);
  const slots = slotsOf(batch * data.slotRowBytes);
  const memory = {
    rows: cost.rows * data.storedRowBytes,
    raw: rawBytes(view, { evaluation: resolved.last === "pad" }),
    slots: topology.ranksPerNode * slots * batch * data.slotRowBytes,
  };
  const plan: Plan = {
    data: {
      shards,
      bytes: view.bytes,
      samples: view.samples,
      blocks: view.blocks,
      recordBytes: view.bytes / view.samples,
    },
    order: {
      shuffle: resolved.shuffle,
      held: resolved.held,
      lanes: resolved.lanes,
      window: resolved.window,
      extents: extents.count,
      extentBytes: view.bytes / extents.count,
      shuffleWindow: Math.min(resolved.lanes * resolved.window, view.samples),
      globalBatch: resolved.globalBatch,
      steps,
      optimizerSteps: Math.floor(steps / gradAccum),
    },
    node: {
      lanes: cost.lanes,
      memory: { ...memory, total: memory.rows + memory.raw + memory.slots },
      opens: cost.opens,
      bytes: cost.bytes,
      reads: cost.reads,
      readBytes: cost.bytes / Math.max(cost.reads, 1),
      mergedShare: cost.mergedShare,
    },
    bill: billOf({
      shards,
      ofNode: cost.opens,
      visits: cost.visits,
      reads: cost.reads,
      bytes: cost.bytes,
      samples: view.samples / nodes,
      recordBytes: view.bytes / view.samples,
      held: resolved.held,
      handles: data.handles,
    }),
    storage: {
      readers: cost.readers,
      mostReaders: cost.mostReaders,
      bytes: cost.bytes * nodes,
      opens: cost.opens * nodes,
      firstPercent: cost.first,
    },
    notes: notes(data, cost.lanes, nodes),
  };
  if (data.opensCap !== undefined) {
    const { opens, tables } = plan.bill.firstEpoch;
    // The first rows of each lane, or of all shards, each from a shard and its block table; three files of the index.
    const first = resolved.held || cost.lanes === 0 ? Math.min(shards, batch * topology.ranksPerNode) : cost.lanes;
    plan.capped = cappedOpens(data.opensCap, nodes, 2 * first + 3, opens + tables);
  }
  if (stepMs !== undefined) {
    const seconds = (steps * stepMs) / 1000;
    plan.epoch = { seconds, samplesPerSecond: (step * 1000) / stepMs, nodeBytesPerSecond: cost.bytes / seconds };
  }
  const better = betterLanes(data, topology, nodes, cost.readers);
  if (better !== undefined) plan.betterLanes = better;
  return plan;
}

interface Costs {
  lanes: number;
  /** Rows in memory. */
  rows: number;
  opens: number;
  /** Extents that a node reads, or samples where each is read alone. */
  visits: number;
  bytes: number;
  reads: number;
  mergedShare: number;
  readers: number;
  mostReaders: number;
  first: { extents: number; shards: number };
}

function costs(
  { view, resolved, extents, extentBytes, shards }: PlanData,
  order: SourceOrder,
  topology: Topology,
  nodes: number,
): Costs {
  const readers = {
    sessions: topology.ranksPerNode,
    batch: topology.batch,
    step: topology.world * topology.batch,
    random: false,
    evaluation: resolved.last === "pad",
  };
  if (resolved.shuffle === "global" && !resolved.held) {
    const samples = view.samples / nodes;
    const span = (RESTART_EVERY / 2) * (view.bytes / view.samples);
    const first = view.samples / 100;
    return {
      lanes: 0,
      rows: residentRows(order, view, 0, readers),
      opens: shards,
      visits: samples,
      bytes: samples * span,
      reads: samples,
      mergedShare: 0,
      readers: nodes,
      mostReaders: nodes,
      first: { extents: drawn(extents.count, first), shards: drawn(shards, first) },
    };
  }
  if (resolved.held) {
    let merged = 0;
    let reads = 0;
    for (const size of extentBytes) {
      if (size >= READ_BYTES) merged += size;
      reads += Math.ceil(size / READ_MOST);
    }
    return {
      lanes: 1,
      rows: residentRows(order, view, 0, readers),
      opens: shards,
      visits: shards,
      bytes: view.bytes,
      reads,
      mergedShare: merged / view.bytes,
      readers: nodes,
      mostReaders: nodes,
      first: { extents: extents.count, shards },
    };
  }
  const found = simulate(order, extentBytes, topology);
  const lanes = lanesOfNodes(resolved.lanes, topology, nodes);
  return {
    lanes,
    rows: residentRows(order, view, lanes, readers),
    opens: found.shardsOfFirstNode,
    visits: (extents.count * found.readers) / nodes,
    bytes: (view.bytes * found.bytesRatio) / nodes,
    reads: found.reads / nodes,
    mergedShare: found.mergedShare,
    readers: found.readers,
    mostReaders: found.mostReaders,
    first: { extents: found.firstExtents, shards: found.firstShards },
  };
}

/** Distinct ones of `among` after `draws` even draws. */
function drawn(among: number, draws: number): number {
  return Math.round(among * -Math.expm1(draws * Math.log1p(-1 / Math.max(among, 2))));
}

/** Most lanes that a node serves. */
function lanesOfNodes(lanes: number, topology: Topology, nodes: number): number {
  const table = laneNodes(lanes, topology);
  const count = new Uint32Array(nodes);
  const seen = new Set<number>();
  for (let lane = 0; lane < lanes; lane++) {
    seen.clear();
    for (let k = 0; k < table.phases; k++) seen.add(table.nodes[lane * table.phases + k]!);
    for (const node of seen) count[node]!++;
  }
  return count.reduce((a, b) => Math.max(a, b), 0);
}

/** The lane count nearest to the present one at which an extent is read by about one node; undefined if there is none to gain. */
function betterLanes(
  { view, resolved }: PlanData,
  topology: Topology,
  nodes: number,
  now: number,
): { lanes: number; readers: number } | undefined {
  if (resolved.shuffle !== "window" || nodes === 1 || now <= GOOD) return undefined;
  let best: { lanes: number; readers: number } | undefined;
  const distance = (lanes: number) => Math.abs(Math.log(lanes / resolved.lanes));
  for (let lanes = nodes; lanes <= Math.min(Math.max(4 * nodes, 256), quotient(view.blocks, 2)); lanes += nodes) {
    if (best !== undefined && distance(lanes) >= distance(best.lanes)) continue;
    const readers = nodesPerLane(lanes, topology);
    if (readers <= GOOD && readers < now) best = { lanes, readers };
  }
  return best;
}

function notes({ view, resolved, shards }: PlanData, lanes: number, nodes: number): string[] {
  const result: string[] = [];
  if (view.streams === true && resolved.shuffle === "window") {
    result.push(
      `gzip or zlib shards are decoded from their beginning: resume inside one reads it again, and a shard in which a lane ` +
        `begins is decoded twice (at most ${resolved.lanes - 1} of ${shards} in an epoch)`,
    );
  }
  if (resolved.held)
    result.push(
      "the whole view fits the shuffle memory: each node decodes it once and keeps it, later epochs read nothing",
    );
  else if (resolved.shuffle === "global") {
    result.push(
      'shuffle="global" reads each sample alone, from up to 64 records before it: shuffle="window" needs thousands of times fewer reads',
    );
  }
  if (resolved.shuffle === "none" && nodes > 1)
    result.push('shuffle="none" has one lane, so nodes read the same extents');
  if (resolved.shuffle === "window" && lanes > 0 && resolved.window * resolved.lanes < view.samples / 1000) {
    result.push(
      "the shuffle window is below 0.1 % of the samples: shards should hold shuffled data, or give more shuffle memory",
    );
  }
  return result;
}
