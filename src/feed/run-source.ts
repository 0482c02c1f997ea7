/** One source of a run: how it is read, decoded and kept, and the rows that takes on this node. */
import { BLOCK_BYTES } from "../formats/types.ts";
import { READ_BLOCKS, READ_BYTES, residentRows, singleRows, windowSizes } from "../order/residency.ts";
import type { Readers } from "../order/residency.ts";
import type { SourceOrder } from "../order/source-order.ts";
import type { OrderView } from "../order/types.ts";
import type { Audience } from "./audience.ts";
import type { Decoders } from "./decoders.ts";
import { EarlyRows } from "./early.ts";
import type { Patience } from "./early.ts";
import { HeldSupply } from "./held-supply.ts";
import { Intake } from "./intake.ts";
import type { IntakeOptions } from "./intake.ts";
import { LaneSupply } from "./lane-supply.ts";
import type { GroupMemory } from "./memory.ts";
import type { Quarantine } from "./quarantine.ts";
import type { Source } from "./source.ts";
import { SparseSupply } from "./sparse-supply.ts";
import type { Supply } from "./supply.ts";
import type { TargetLoad } from "./target-load.ts";

/** A source of an opened view. */
export interface SourceView {
  order: SourceOrder;
  view: OrderView;
  source: Source;
  /** Bytes of the largest block, as far as the block tables were read. */
  largestBlockBytes: number;
  /** Replaces bad records where the job asked for that. */
  quarantine?: Quarantine;
}

/** Lanes of a source on this node: those known now, and how many at a time. */
export interface LanesHere {
  lanes: ReadonlySet<number>;
  atOnce: number;
}

export interface RunSourceParts {
  /** Number of the run. */
  run: number;
  /** Position at which it begins. */
  from: number;
  memory: GroupMemory;
  decoders: Decoders;
  audience: Audience;
  patience: Patience;
  options: IntakeOptions;
  readers: Readers;
  here: LanesHere;
  load: TargetLoad;
  /** Rows on request: names the sample of each position asked for. */
  sampleAt: ((position: number) => number) | undefined;
  changed: () => void;
  failed: (error: Error) => void;
}

export class RunSource {
  readonly supply: Supply;
  readonly intake: Intake;

  constructor({ order, view, source, quarantine, largestBlockBytes }: SourceView, parts: RunSourceParts) {
    const { run, from, memory, decoders, audience, patience, readers, here, load, sampleAt, changed, failed } = parts;
    const intake = new Intake(run, source, memory, decoders, parts.options, quarantine);
    this.intake = intake;
    const early = new EarlyRows({
      source,
      memory,
      intake,
      patience,
      limit: singleRows(order, readers),
      changed,
      failed,
      sampleAt: sampleAt ?? ((position) => order.sampleAt(position)),
    });
    const { shuffle, held } = order.resolved;
    if (readers.random || (shuffle === "global" && !held)) {
      this.supply = new SparseSupply(early, readers.random ? () => true : (position) => audience.wants(position));
    } else if (held) {
      this.supply = new HeldSupply({ from, order, source, memory, intake, early, changed, failed });
    } else {
      const { window, capacity, maxRows, shared } = windowSizes(order, view, readers);
      const rows = rowsOf({ order, view }, readers, here);
      // Two of the largest reads always fit; an evaluation, which has room for one, asks for no more than usual.
      const room = readers.evaluation ? 0 : memory.raw.size / 2 - 2 * largestBlockBytes;
      const reads = (): { bytes: number; rows: number } => {
        const bytes = Math.max(READ_BYTES, Math.min(source.requestBytes ?? 0, room));
        return { bytes, rows: Math.floor((maxRows * (Math.ceil(bytes / BLOCK_BYTES) + 1)) / READ_BLOCKS) };
      };
      this.supply = new LaneSupply(from, here.lanes, {
        order,
        source,
        memory,
        intake,
        audience,
        early,
        window,
        step: readers.step,
        capacity,
        load,
        reads,
        shared: { free: shared, left: rows - singleRows(order, readers) },
        largestExtent: largestExtent(order),
        changed,
        failed,
      });
    }
  }
}

/** Rows that a source needs on this node. */
export function rowsOf(
  { order, view }: Pick<SourceView, "order" | "view">,
  readers: Readers,
  { atOnce }: LanesHere,
): number {
  return residentRows(order, view, readers.random || order.resolved.shuffle === "global" ? 0 : atOnce, readers);
}

function largestExtent(order: SourceOrder): number {
  const { count, sampleStart } = order.extents;
  let most = 1;
  for (let x = 0; x < count; x++) most = Math.max(most, (sampleStart[x + 1] as number) - (sampleStart[x] as number));
  return most;
}
