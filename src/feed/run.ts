/**
 * Run: one supply at work, with its memory, its kernels and the consumers that move through the order together.
 * A consumer that seeks elsewhere gets another run; a run that nobody uses is closed and its memory is gone.
 */
import type { Order } from "../order/order.ts";
import { rawBytes, residentRows, singleRows, windowSizes } from "../order/residency.ts";
import type { Readers } from "../order/residency.ts";
import type { OrderView } from "../order/types.ts";
import type { Kernels } from "../kernels/kernels.ts";
import { loadKernels } from "../kernels/load.ts";
import { formatOf } from "../formats/registry.ts";
import { Audience, consumerKey, Steps } from "./audience.ts";
import type { ConsumerId } from "./audience.ts";
import { stagingBytes } from "./batcher.ts";
import type { Served } from "./batcher.ts";
import type { SlotLayout, ViewLayout } from "./columns.ts";
import type { Decoders } from "./decoders.ts";
import { EarlyRows } from "./early.ts";
import type { Patience } from "./early.ts";
import { HeldSupply } from "./held-supply.ts";
import { Intake } from "./intake.ts";
import { LaneSupply } from "./lane-supply.ts";
import { align, GroupMemory } from "./memory.ts";
import type { MemoryPool } from "./memory.ts";
import type { Source } from "./source.ts";
import { SparseSupply } from "./sparse-supply.ts";
import type { Supply } from "./supply.ts";

export interface RunParts {
  order: Order;
  view: OrderView;
  source: Source;
  /** Bytes of the largest block, as far as the block tables were read. */
  largestBlockBytes: number;
  layout: ViewLayout;
  slot: SlotLayout;
  batch: number;
  world: number;
  strict: boolean;
  checkCrc: boolean;
  patience: Patience;
  decoders: Decoders;
  memories: MemoryPool;
  /** Ranks of this node, whether connected or not, and how many sessions take the rows of each. */
  localRanks: ReadonlyMap<number, number>;
  stride: number;
  changed: () => void;
  failed: (error: Error) => void;
}

/** What a run will need, before it is made. */
export interface Need {
  rows: number;
  raw: number;
  bytes: number;
}

let nextRun = 1;

export class Run {
  readonly audience: Audience;
  readonly supply: Supply;
  private readonly parts: RunParts;
  private readonly memory: GroupMemory;
  private readonly steps: Steps;
  private readonly number = nextRun++;
  private readonly served = new Set<string>();
  private readonly kernels: Kernels;
  private readonly intake: Intake;
  /** Where a slot is filled before it is handed over, whosever it is. */
  private readonly staging: number;

  /** `sampleAt`: rows on request (random access): names the sample of each position asked for. */
  constructor(parts: RunParts, need: Need, from: number, sampleAt?: (position: number) => number) {
    const random = sampleAt !== undefined;
    this.parts = parts;
    const { order, source, layout, decoders, batch, world } = parts;
    this.memory = new GroupMemory(parts.memories, layout.rowBytes, need.rows, need.raw);
    this.kernels = loadKernels({ memory: this.memory.memory, tables: this.memory.tables, initTables: true });
    formatOf(source.index.format).compilePlan(this.kernels, this.memory.plan, layout.stored);
    decoders.attach(this.number, this.memory, source.index.format);
    this.staging = this.memory.raw.alloc(stagingBytes(parts.slot, batch));
    // The client's line of the slot is written with the slot: it must not hold what was here before.
    this.memory.bytes.fill(0, this.staging, this.staging + stagingBytes(parts.slot, batch));
    this.steps = new Steps(order, from, batch * world);
    this.audience = new Audience(order, this.steps, world);
    for (const [rank, peers] of parts.localRanks) this.audience.expect(rank, parts.stride, peers, from);
    const { memory, audience } = this;
    const { changed, failed } = parts;
    const intake = new Intake(this.number, source, memory, decoders, {
      checkCrc: parts.checkCrc,
      strict: parts.strict,
    });
    this.intake = intake;
    const early = new EarlyRows({
      source,
      memory,
      intake,
      patience: parts.patience,
      limit: singleRows(order, readersOf(parts, random)),
      changed,
      failed,
      sampleAt: sampleAt ?? ((position) => order.sampleAt(position)),
    });
    const { shuffle, held } = order.resolved;
    if (random || (shuffle === "global" && !held)) {
      this.supply = new SparseSupply(early, random ? () => true : (position) => audience.wants(position));
    } else if (held) {
      this.supply = new HeldSupply({ order, source, memory, intake, early, changed, failed });
    } else {
      const { window, capacity, maxRows, shared } = windowSizes(order, parts.view, batch * world);
      this.supply = new LaneSupply(from, lanesHere(parts, from), {
        order,
        source,
        memory,
        intake,
        audience,
        early,
        window,
        step: batch * world,
        capacity,
        maxRows,
        shared: { free: shared, left: need.rows - singleRows(order, readersOf(parts, random)) },
        largestExtent: largestExtent(order),
        changed,
        failed,
      });
    }
  }

  get reserved(): number {
    return this.memory.reserved;
  }

  /** Memory that a run from this position needs on this node. */
  static need(parts: RunParts, from: number, random: boolean): Need {
    const { order, view, layout, batch, slot, source } = parts;
    const readers = readersOf(parts, random);
    const lanes = random || order.resolved.shuffle === "global" ? 0 : lanesAtOnce(parts, from);
    const rows = residentRows(order, view, lanes, readers);
    const raw = rawBytes(source.index.totals.bytes, parts.largestBlockBytes);
    const staging = stagingBytes(slot, batch);
    return { rows, raw: raw + staging, bytes: rows * layout.rowBytes + raw + staging };
  }

  /** A seat for a consumer whose first step here begins at `position`; none where its rows are not kept. */
  seat(rank: number, stride: number, residue: number, position: number): ConsumerId | undefined {
    return this.audience.seat(rank, stride, residue, position);
  }

  /** Residue of a consumer whose first step here begins at `position`. */
  residue(position: number, offset: number, stride: number): number {
    return (this.steps.number(position) + offset) % stride;
  }

  /** First step of the consumer at or after `position`. */
  firstStep(position: number, offset: number): number {
    let start = position;
    for (let k = 0; k < offset; k++) start = this.steps.after(start);
    return start;
  }

  join(id: ConsumerId, position: number): Served {
    const { batch, order, world } = this.parts;
    this.audience.open(id, position);
    const { steps, supply, memory, kernels, audience, staging: at } = this;
    const served: Served = {
      supply,
      memory,
      kernels,
      steps,
      rowTable: at,
      staging: at + align(batch * 4, 64),
      deal: (start) => order.deal(start, steps.size, world, id.rank),
      advance: (next) => audience.advance(id, next),
      passed: (start) => audience.passed(id, start),
    };
    this.served.add(consumerKey(id));
    return served;
  }

  leave(id: ConsumerId): void {
    const key = consumerKey(id);
    if (!this.served.delete(key)) return;
    this.audience.leave(id);
    this.supply.sweep();
  }

  /** Nothing is being read or decoded: whoever waits here waits for another rank. */
  get idle(): boolean {
    return this.intake.idle;
  }

  /** What a session of this run waits for, in words. */
  why(): string {
    const reading = this.intake.oldest();
    if (reading !== undefined) return reading;
    if (!this.intake.idle) return `decoding: ${this.parts.decoders.queued} blocks in the queue`;
    return `room: memory is full of rows of ${this.audience.slowest()}`;
  }

  get users(): number {
    return this.served.size;
  }

  /** Resolves when nothing works in its memory any more. A read that hangs keeps it: nobody else may have it. */
  async close(): Promise<void> {
    const { decoders, memories } = this.parts;
    this.supply.close();
    await this.intake.drained();
    decoders.detach(this.number);
    memories.release(this.memory.memory);
  }
}

function readersOf(parts: RunParts, random: boolean): Readers {
  return {
    sessions: parts.localRanks.size * parts.stride,
    batch: parts.batch,
    step: parts.batch * parts.world,
    random,
  };
}

/**
 * Lanes whose rows this node holds at a time. Where a pass is not a whole number of steps, the ranks' lanes shift at its
 * end: then those of two passes are at work together.
 */
function lanesAtOnce(parts: RunParts, from: number): number {
  const { order, batch, world, localRanks } = parts;
  if (localRanks.size === world) return order.lanes;
  const here = lanesHere(parts, from).size;
  const shifts = order.resolved.last !== "pad" && order.epochLength % (batch * world) !== 0;
  return shifts ? Math.min(order.lanes, 2 * here + 2) : here;
}

function largestExtent(order: Order): number {
  const { count, sampleStart } = order.extents;
  let most = 1;
  for (let x = 0; x < count; x++) most = Math.max(most, (sampleStart[x + 1] as number) - (sampleStart[x] as number));
  return most;
}

/** Lanes that the local ranks read from, found by dealing steps until every lane had its turn. */
function lanesHere(parts: RunParts, from: number): Set<number> {
  const { order, batch, world, localRanks } = parts;
  const lanes = new Set<number>();
  const steps = new Steps(order, from, batch * world);
  const turns = Math.ceil(order.lanes / (batch * world)) * 8;
  for (let k = 0, start = from; k < turns; k++, start = steps.after(start)) {
    for (const rank of localRanks.keys()) {
      for (const position of order.deal(start, steps.size, world, rank).positions) {
        lanes.add(order.epochs.split(position).place % order.lanes);
      }
    }
  }
  return lanes;
}
