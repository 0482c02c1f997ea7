/**
 * Opening an order: the sources of a plan, each over the set that it is of. Those that are over, too: an epoch may be
 * begun anew, and ranks come back some steps apart. A run takes memory for those only that it serves.
 */
import { extents } from "../dataset/extents.ts";
import { LargestBlock, largestBlock } from "../dataset/largest-block.ts";
import type { DatasetIndex } from "../dataset/types.ts";
import { BLOCK_BYTES } from "../formats/types.ts";
import { resolvedEntry } from "../order/job.ts";
import type { PlannedOrder } from "../order/job.ts";
import { StateMismatch } from "../order/errors.ts";
import { Order } from "../order/order.ts";
import { RUN_BLOCKS } from "../order/resolve.ts";
import { timelineOf } from "../order/state.ts";
import type { SourceOptions } from "../order/types.ts";
import type { Placement } from "../placement/placement.ts";
import type { Storage } from "../storage/types.ts";
import { newClocks } from "../telemetry/clocks.ts";
import type { ViewLayout } from "./columns.ts";
import type { GroupView } from "./group.ts";
import type { NamedIndex, SourceViews } from "./order-view.ts";
import { Source } from "./source.ts";
import { featuresOf } from "./token-column.ts";

/**
 * `named`, `views`: the sources of the job; `plan` was made of them. `layout`: what is delivered of them. `placement`: knows where files
 * lie, if anybody does.
 */
export async function openOrder(
  plan: PlannedOrder,
  named: readonly NamedIndex[],
  views: readonly SourceViews[],
  options: SourceOptions,
  storage: Storage,
  layout: ViewLayout,
  placement?: Pick<Placement, "home">,
): Promise<Pick<GroupView, "order" | "sources" | "clocks">> {
  const timeline = timelineOf(plan.entries, plan.segments);
  const clocks = newClocks();
  const features = new Set(featuresOf(layout.stored, layout.text));
  const opened = await Promise.all(
    plan.entries.map(async ({ name, view: fingerprint }, number) => {
      const at = named.findIndex((source) => source.name === name);
      const sets = at < 0 ? [] : [{ view: views[at]!.view, index: views[at]!.index }, ...views[at]!.past];
      const set = sets.find((candidate) => candidate.view.fingerprint === fingerprint);
      if (set === undefined) {
        if (timeline.serves(number, plan.position)) refuse(name, at, plan.position);
        return undefined;
      }
      const { view, index } = set;
      const resolved = resolvedEntry(plan, number, view, options);
      const table = await extents(index, resolved.extentBlocks);
      const asColumns = layout.text !== undefined || layout.tokens !== undefined;
      const home = placement?.home(index.root);
      const source = new Source(index, table, name, storage, clocks, features, asColumns, home);
      // A block of tokens ends with its last sample: where it is not known, that one is taken to be as long as samples may be.
      const beyond = index.cut?.recordAt === undefined ? 0 : longestSample(layout);
      const largestBlockBytes = (await largestBlockOf(index, resolved.extentBlocks, features)) + beyond;
      return { number, view, extents: table, resolved, source, largestBlockBytes };
    }),
  );
  const order = new Order(
    timeline,
    opened.filter((source) => source !== undefined),
  );
  const sources = opened.map((source) =>
    source === undefined ? undefined : { ...source, order: order.source(source.number) },
  );
  return { order, sources, clocks };
}

/** Bytes of a sample of tokens, at most. */
function longestSample({ columns }: ViewLayout): number {
  return 8 * Math.max(...columns.map(({ width }) => width));
}

/** What is due is not there: the source has left the job, or its index has forgotten the set that the epoch began over. */
function refuse(name: string, at: number, position: number): never {
  throw new StateMismatch(
    at < 0
      ? `the state goes on with source ${name} from position ${position}, and this job has no source of that name`
      : `the state goes on with source ${name} as it was before shards were appended, from position ${position}, and its index does not know that set`,
    {},
    at < 0
      ? "keep it in the mix, with weight 0 if no more is wanted of it; it may go once the state is past its last sample"
      : "give the index that was there when the state was taken, or begin without the state",
  );
}

/**
 * Bytes of the largest block in the view, of the index, else of the block tables. Extents of whole runs and shards need none of those,
 * which may be many: there what no index says is taken as usual.
 */
async function largestBlockOf(
  index: DatasetIndex,
  extentBlocks: number,
  features: ReadonlySet<string>,
): Promise<number> {
  if (index.largestBlock !== undefined) return Math.max(BLOCK_BYTES, largestBlock(index.largestBlock, features));
  if (extentBlocks === 0 || extentBlocks >= RUN_BLOCKS) return BLOCK_BYTES;
  const largest = new LargestBlock();
  for (let shard = 0; shard < index.shards.length; shard++) {
    const { table, meta } = await index.shardTable(shard);
    largest.add(table, meta);
  }
  return Math.max(BLOCK_BYTES, largestBlock(largest.found, features));
}
