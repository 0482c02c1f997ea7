/** `athanor plan PATH|description.json`: what a run will cost, before it runs. */
import { readFile } from "node:fs/promises";
import { InvalidArgumentError, type Command } from "commander";
import { formatCount, formatDuration, formatNumber, formatSize } from "../base/units.ts";
import { Usage } from "../base/usage.ts";
import { IndexMissing, indexCommand } from "../dataset/errors.ts";
import { extents } from "../dataset/extents.ts";
import { openIndex } from "../dataset/index-read.ts";
import { ownColumns } from "../feed/delivered.ts";
import { viewOf } from "../feed/order-view.ts";
import { isStream } from "../formats/types.ts";
import { describe, extentBytes, storedRowBytes } from "../order/description.ts";
import { makePlan, type Plan, type PlanData } from "../order/plan.ts";
import { resolveOrder } from "../order/resolve.ts";
import type { OrderOptions } from "../order/types.ts";
import { HANDLES } from "../storage/handles.ts";
import { CAPS, burstOf, parsePolite } from "../storage/polite.ts";
import { printLine, wantsJson, withStorage } from "./command.ts";
import { addOrderFlags, orderOptions, whole } from "./order-flags.ts";
import type { OrderFlags } from "./order-flags.ts";
import { addViewFlags, viewRequest, type ViewFlags } from "./view-flags.ts";

interface Flags extends OrderFlags, ViewFlags {
  ranks: number;
  nodes: number;
  batch: number;
  gradAccum: number;
  stepMs?: number;
  indexDir?: string;
}

export function register(program: Command): void {
  const plan = program
    .command("plan")
    .description("memory, opens, reads, shuffle window, epoch time, before the run")
    .argument("<path>", "folder, file or glob of shards (indexed), or a description of a data set (.json)")
    .option("--ranks <n>", "data-parallel ranks of all nodes together (default: one a node)", whole)
    .option("--nodes <n>", "nodes", whole, 1)
    .option("--batch <n>", "samples a rank gets in one step", whole, 32)
    .option("--grad-accum <n>", "steps of one optimizer batch", whole, 1)
    .option("--step-ms <ms>", "milliseconds of one step, for the epoch's time", number);
  addOrderFlags(addViewFlags(plan))
    .option("--index-dir <dir>", "where the index lies when the data is read-only")
    .action(async (path: string, given: Omit<Flags, "ranks"> & { ranks?: number }, command: Command) => {
      const flags: Flags = { ...given, ranks: given.ranks ?? given.nodes };
      const { ranks, nodes, batch, gradAccum, stepMs } = flags;
      const data = path.endsWith(".json") ? await described(path, flags) : await indexed(path, flags);
      const plan = makePlan(data, { ranks, nodes, batch, gradAccum, ...(stepMs === undefined ? {} : { stepMs }) });
      await printLine(wantsJson(command) ? JSON.stringify(plan) : asText(plan, flags));
    });
}

async function described(path: string, flags: Flags): Promise<PlanData> {
  const names = flags.columns?.split(",");
  const columns = names === undefined ? undefined : /^\d+$/.test(flags.columns!) ? Number(flags.columns) : names.length;
  let value: unknown;
  try {
    value = JSON.parse(await readFile(path, "utf8"));
  } catch (error) {
    throw new Usage("a description must be a readable JSON file", { file: path }, "see docs/reference/order.md", error);
  }
  const shape = describe(
    value,
    {
      ...(flags.maxLength === undefined ? {} : { maxLength: flags.maxLength }),
      ...(columns === undefined ? {} : { columns }),
    },
    path,
  );
  const resolved = resolveOrder(shape.view, options(flags));
  const table = shape.extents(resolved.extentBlocks);
  return {
    view: shape.view,
    resolved,
    extents: table,
    extentBytes: extentBytes(table, shape.shardBytes, shape.isStream),
    shards: shape.shards,
    handles: HANDLES,
    opensCap: opensCap(flags.nodes),
    storedRowBytes: storedRowBytes(shape.view.rowBytes),
    slotRowBytes: shape.view.rowBytes,
  };
}

async function indexed(path: string, flags: Flags): Promise<PlanData> {
  return await withStorage(async (storage) => {
    const stored = await openIndex(path, { storage, indexDir: flags.indexDir });
    if (stored === undefined)
      throw new IndexMissing("there is no index", { file: path }, indexCommand(path, flags.indexDir));
    const request = { ...(await viewRequest(flags, storage)), own: ownColumns(flags.last) };
    const { view, index, layout } = await viewOf(stored, request, storage);
    const resolved = resolveOrder(view, options(flags));
    const table = await extents(index, resolved.extentBlocks);
    const { shards } = index;
    return {
      view,
      resolved,
      extents: table,
      extentBytes: extentBytes(
        table,
        (shard) => shards[shard]!.size,
        (shard) => isStream(shards[shard]!.encoding),
      ),
      shards: shards.length,
      handles: HANDLES,
      opensCap: opensCap(flags.nodes),
      storedRowBytes: layout.rowBytes,
      slotRowBytes: layout.columns.reduce((sum, column) => sum + column.bytes, 0),
    };
  });
}

/** Of the job that is planned: wherever this runs, its data lies on a file system that others use. */
function opensCap(nodes: number): PlanData["opensCap"] {
  const text = process.env["ATHANOR_POLITE"];
  const { opens } = text === undefined || text === "" ? CAPS : parsePolite(text);
  return Number.isFinite(opens) ? { perSecond: opens, burst: burstOf("opens", opens / nodes) } : undefined;
}

function options(flags: Flags): OrderOptions {
  return orderOptions(flags, 0n, flags.ranks * flags.batch * flags.gradAccum);
}

function asText(
  { data, order, node, bill, capped, storage, epoch, betterLanes, notes }: Plan,
  { nodes, ranks }: Flags,
): string {
  const percent = (share: number) => `${(share * 100).toFixed(share >= 0.9995 || share === 0 ? 0 : 1)} %`;
  const mode = order.held ? "global, held in memory" : order.shuffle;
  const { firstEpoch, laterEpochs, random } = bill;
  const rows: [string, string][] = [
    [
      "data",
      `${formatNumber(data.shards, "shard")}, ${formatSize(data.bytes)}, ${formatNumber(data.samples, "sample")} of ${formatSize(data.recordBytes)}`,
    ],
    [
      "order",
      `${mode}: ${formatNumber(order.lanes, "lane")}, ${formatNumber(order.extents, "extent")} of ${formatSize(order.extentBytes)}`,
    ],
    ["shuffle window", `${formatNumber(order.shuffleWindow, "sample")} (${formatCount(order.window)} a lane)`],
    [
      "steps an epoch",
      `${formatCount(order.steps)}, optimizer steps ${formatCount(order.optimizerSteps)} of ${formatNumber(order.globalBatch, "sample")}`,
    ],
    [
      "memory a node",
      `${formatSize(node.memory.total)}: rows ${formatSize(node.memory.rows)} (${formatNumber(node.lanes, "lane")}), raw ${formatSize(node.memory.raw)}, slots ${formatSize(node.memory.slots)}`,
    ],
    [
      "opens a node",
      `${formatCount(node.opens)} of ${formatNumber(data.shards, "shard")} in an epoch, each once at a time for ${ranks === nodes ? "its rank" : `all its ${formatCount(ranks / nodes)} ranks`}`,
    ],
    [
      "reads a node",
      `${formatSize(node.bytes)} in ${formatNumber(Math.ceil(node.reads), "read")} of ${formatSize(node.readBytes)}; ${percent(node.mergedShare)} of the bytes in reads of 8MiB or more`,
    ],
    [
      "bill a node",
      `first epoch ${formatNumber(firstEpoch.metadata, "metadata call")}: opens and closes of ${formatNumber(firstEpoch.opens, "shard")} and ${formatNumber(firstEpoch.tables, "block table")}` +
        `${epoch === undefined ? "" : `, ${few((firstEpoch.metadata * nodes) / epoch.seconds)}/s of all nodes`}; in the long run ${formatCount(laterEpochs.metadata)} an epoch`,
    ],
    [
      "1000 samples",
      `${few(bill.metadataPerThousand)} metadata calls, ${few(bill.readsPerThousand)} reads in the long run`,
    ],
    [
      "cap",
      capped === undefined
        ? "none on opens"
        : `${formatNumber(capped.perSecond, "open")} a second of the job, ${few(capped.share)} of a node and ${formatCount(capped.burst)} at once: ` +
          `a start needs ${formatCount(capped.startOpens)} for the first batch${waitText(capped.startSeconds)}; those of the first epoch ${capped.epochSeconds === 0 ? "wait for nothing" : `take ${formatDuration(capped.epochSeconds)} or more`}`,
    ],
    [
      "random access",
      `the same samples, each read alone: ${formatNumber(Math.round(random.reads), "read")} of ${formatSize(random.readBytes)}, ${few(random.timesTheReads)} times the reads and ${few(random.bytes / Math.max(firstEpoch.bytes, 1))} times the bytes`,
    ],
    [
      "first 1 %",
      `${formatNumber(storage.firstPercent.shards, "shard")}, ${formatNumber(storage.firstPercent.extents, "extent")}`,
    ],
    [
      "amplification",
      `an extent is read by ${storage.readers.toFixed(2)} of ${formatNumber(nodes, "node")} (at most ${storage.mostReaders})`,
    ],
  ];
  if (epoch !== undefined) {
    rows.push([
      "epoch",
      `${formatDuration(epoch.seconds)} if no step waits: ${formatCount(Math.round(epoch.samplesPerSecond))} samples/s, ${formatSize(epoch.nodeBytesPerSecond)}/s a node`,
    ]);
  }
  if (betterLanes !== undefined) {
    rows.push([
      "better",
      `--lanes ${betterLanes.lanes}: an extent would be read by about ${betterLanes.readers.toFixed(2)} nodes (another order: only at the start of a run)`,
    ]);
  }
  const lines = rows.map(([name, text]) => `${name.padEnd(15)} ${text}`);
  return [...lines, ...notes.map((note) => `note: ${note}`)].join("\n");
}

function waitText(seconds: number): string {
  return seconds === 0 ? " and waits for nothing" : ` and waits ${formatDuration(seconds)}`;
}

/** Three digits. */
function few(value: number): string {
  return value >= 100 ? formatCount(Math.round(value)) : String(Number(value.toPrecision(3)));
}

function number(text: string): number {
  const value = Number(text);
  if (!(value > 0) || !Number.isFinite(value)) throw new InvalidArgumentError("must be a number > 0.");
  return value;
}
