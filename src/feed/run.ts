/**
 * Run: one supply at work, with its memory, its kernels and the consumers that move through the order together.
 * A consumer that seeks elsewhere gets another run; a run that nobody uses is closed and its memory is gone.
 */
import { rawBytes } from "../order/residency.ts";
import { OrderPosition } from "../order/errors.ts";
import type { Order } from "../order/order.ts";
import type { Readers } from "../order/residency.ts";
import { Audience, consumerKey, Steps } from "./audience.ts";
import type { ConsumerId } from "./audience.ts";
import { stagingBytes } from "./batcher.ts";
import type { Served } from "./batcher.ts";
import type { SlotLayout, ViewLayout } from "./columns.ts";
import type { Decoders } from "./decoders.ts";
import type { Patience } from "./early.ts";
import { NodeLanes } from "./lanes-here.ts";
import { align, GroupMemory } from "./memory.ts";
import type { MemoryPool } from "./memory.ts";
import { MixSupply } from "./mix-supply.ts";
import { rowsOf, RunSource } from "./run-source.ts";
import type { SourceView } from "./run-source.ts";
import type { Supply } from "./supply.ts";
import { TargetLoad } from "./target-load.ts";

export interface RunParts {
  order: Order;
  /** By number; undefined: the job does not name it any more. */
  sources: readonly (SourceView | undefined)[];
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
  private readonly sources: RunSource[];
  /** Where a slot is filled before it is handed over, whosever it is. */
  private readonly staging: number;

  /** `sampleAt`: rows on request (random access): names the sample of each position asked for. */
  constructor(parts: RunParts, need: Need, from: number, sampleAt?: (position: number) => number) {
    const random = sampleAt !== undefined;
    this.parts = parts;
    const { order, layout, decoders, batch, world } = parts;
    const views = present(parts, from, random);
    this.memory = new GroupMemory(parts.memories, layout.rowBytes, need.rows, need.raw);
    // One plan serves all sources: they deliver the same columns.
    for (const { source } of views) {
      if (source.format.kind === "rows")
        source.format.compilePlan(this.memory.kernels, this.memory.plan, layout.stored);
    }
    decoders.attach(this.number, this.memory, layout.stored, layout.text);
    this.staging = this.memory.raw.alloc(stagingBytes(parts.slot, batch));
    // The client's line of the slot is written with the slot: it must not hold what was here before.
    this.memory.bytes.fill(0, this.staging, this.staging + stagingBytes(parts.slot, batch));
    this.steps = new Steps(order, from, batch * world);
    // Every position can be had where every source of the order is held whole, those that are over too.
    const held = views.length === parts.sources.length && views.every(({ order: own }) => own.resolved.held);
    this.audience = new Audience(order, this.steps, world, held);
    for (const [rank, peers] of parts.localRanks) this.audience.expect(rank, parts.stride, peers, from);
    const readers = readersOf(parts, random);
    const nodeLanes = lanesOfNode(parts, this.steps, from);
    const load = new TargetLoad();
    const made = parts.sources.map((view) =>
      view === undefined || !views.includes(view)
        ? undefined
        : new RunSource(view, {
            run: this.number,
            from,
            memory: this.memory,
            decoders,
            audience: this.audience,
            patience: parts.patience,
            options: { checkCrc: parts.checkCrc, strict: parts.strict },
            readers,
            here: nodeLanes.of(view.order),
            load,
            sampleAt,
            changed: parts.changed,
            failed: parts.failed,
          }),
    );
    this.sources = made.filter((source) => source !== undefined);
    const [only] = this.sources;
    this.supply =
      this.sources.length === 1
        ? only!.supply
        : new MixSupply(
            order.timeline,
            made.map((source) => source?.supply),
          );
  }

  get reserved(): number {
    return this.memory.reserved;
  }

  /** Memory that a run from this position needs on this node. */
  static need(parts: RunParts, from: number, random: boolean): Need {
    const { order, layout, batch, world, slot } = parts;
    const readers = readersOf(parts, random);
    const nodeLanes = lanesOfNode(parts, new Steps(order, from, batch * world), from);
    let rows = 0;
    let raw = 0;
    for (const source of present(parts, from, random)) {
      rows += rowsOf(source, readers, nodeLanes.of(source.order));
      raw = Math.max(raw, rawBytes(source.view, readers, source.largestBlockBytes));
    }
    const staging = stagingBytes(slot, batch);
    return { rows, raw: raw + staging, bytes: rows * layout.rowBytes + raw + staging };
  }

  /** Reads and decodes what there is room for: whatever is furthest behind reads first. */
  pump(): void {
    for (;;) {
      const byNeed = this.supply
        .strands()
        .map((strand) => ({ strand, frontier: strand.frontier }))
        .sort((a, b) => a.frontier - b.frontier);
      if (!byNeed.some(({ strand }) => strand.advance())) return;
    }
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
    const { steps, supply, memory, audience, staging: at } = this;
    const served: Served = {
      supply,
      memory,
      kernels: memory.kernels,
      steps,
      rowTable: at,
      staging: at + align(batch * 4, 64),
      sourceOf: this.parts.sources.length === 1 ? undefined : (position) => order.timeline.locate(position).source,
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
    return this.sources.every(({ intake }) => intake.idle);
  }

  /** What a session of this run waits for, in words. */
  why(): string {
    for (const { intake } of this.sources) {
      const reading = intake.oldest();
      if (reading !== undefined) return reading;
    }
    if (!this.idle) return `decoding: ${this.parts.decoders.queued} blocks in the queue`;
    return `room: memory is full of rows of ${this.audience.slowest()}`;
  }

  get users(): number {
    return this.served.size;
  }

  /** Resolves when nothing works in its memory any more. A read that hangs keeps it: nobody else may have it. */
  async close(): Promise<void> {
    const { decoders, memories } = this.parts;
    this.supply.close();
    for (const { intake } of this.sources) intake.end();
    await Promise.all(this.sources.map(({ intake }) => intake.drained()));
    decoders.detach(this.number);
    memories.release(this.memory.kernels);
  }
}

function readersOf(parts: RunParts, random: boolean): Readers {
  return {
    sessions: parts.localRanks.size * parts.stride,
    batch: parts.batch,
    step: parts.batch * parts.world,
    random,
    evaluation: parts.order.last === "pad",
  };
}

/** Sources that are served from a position on. Throws ATH_ORDER_POSITION for one that this job no longer has. */
function present({ sources, order }: RunParts, from: number, random: boolean): SourceView[] {
  return sources.filter((source, number): source is SourceView => {
    const serves = random || order.timeline.serves(number, from);
    if (!serves || source !== undefined) return serves;
    throw new OrderPosition(
      `position ${from} lies before the end of source ${number} of the order, which this job does not name any more`,
      {},
      "go on from a later position, or name that source in the mix with weight 0",
    );
  });
}

function lanesOfNode({ order, world, localRanks }: RunParts, steps: Steps, from: number): NodeLanes {
  return new NodeLanes(order, steps, from, { world, local: [...localRanks.keys()] });
}
