/** `athanor plan PATH|description.json`: what a run will cost, before it runs. */
import { readFile } from "node:fs/promises";
import { InvalidArgumentError, type Command } from "commander";
import { formatCount, formatDuration, formatSize, parseSize } from "../base/units.ts";
import { Usage } from "../base/usage.ts";
import { IndexMissing, indexCommand } from "../dataset/errors.ts";
import { extents, orderView } from "../dataset/extents.ts";
import { openIndex } from "../dataset/index-read.ts";
import { viewLayout } from "../feed/columns.ts";
import { describe, extentBytes, storedRowBytes } from "../order/description.ts";
import { makePlan, type Plan, type PlanData } from "../order/plan.ts";
import { resolveOrder } from "../order/resolve.ts";
import type { OrderOptions, OrderView } from "../order/types.ts";
import { printLine, wantsJson, withStorage } from "./command.ts";

interface Flags {
  ranks: number;
  nodes: number;
  batch: number;
  gradAccum: number;
  maxLength?: number;
  columns?: string;
  shuffle: "window" | "global" | "none";
  shuffleMemory?: string;
  lanes?: number;
  window?: number;
  unit: "extent" | "shard";
  last: "carry" | "drop" | "pad";
  stepMs?: number;
  indexDir?: string;
}

export function register(program: Command): void {
  program
    .command("plan")
    .description("memory, opens, reads, shuffle window, epoch time, before the run")
    .argument("<path>", "folder, file or glob of shards (indexed), or a description of a data set (.json)")
    .option("--ranks <n>", "data-parallel ranks of all nodes together", whole, 1)
    .option("--nodes <n>", "nodes", whole, 1)
    .option("--batch <n>", "samples a rank gets in one step", whole, 32)
    .option("--grad-accum <n>", "steps of one optimizer batch", whole, 1)
    .option("--max-length <n>", "values a row of a column (default: 512, or the description's)", whole)
    .option("--columns <names>", "delivered columns, a,b,c; of a description their number")
    .option("--shuffle <mode>", "window, global or none", oneOf("window", "global", "none"), "window")
    .option("--shuffle-memory <size>", "bytes of all windows of the job together (default: 1GiB)")
    .option("--lanes <n>", "lanes of the order (default: by the size of the set)", whole)
    .option("--window <n>", "samples of a lane that are shuffled together (default: by the shuffle memory)", whole)
    .option("--unit <unit>", "extent or shard: what is permuted", oneOf("extent", "shard"), "extent")
    .option("--last <rule>", "carry, drop or pad", oneOf("carry", "drop", "pad"), "carry")
    .option("--step-ms <ms>", "milliseconds of one step, for the epoch's time", number)
    .option("--index-dir <dir>", "where the index lies when the data is read-only")
    .action(async (path: string, flags: Flags, command: Command) => {
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
    storedRowBytes: storedRowBytes(shape.view.rowBytes),
    slotRowBytes: shape.view.rowBytes,
  };
}

async function indexed(path: string, flags: Flags): Promise<PlanData> {
  return await withStorage(async (storage) => {
    const index = await openIndex(path, { storage, indexDir: flags.indexDir });
    if (index === undefined)
      throw new IndexMissing("there is no index", { file: path }, indexCommand(path, flags.indexDir));
    const columns = flags.columns?.split(",");
    const layout = viewLayout(
      index.schema,
      { columns, maxLength: flags.maxLength ?? 512, padId: 0, strict: false },
      index.root,
    );
    const view: OrderView = await orderView(index, "", layout.nominalBytes);
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
        (shard) => shards[shard]!.encoding !== "plain",
      ),
      shards: shards.length,
      storedRowBytes: layout.rowBytes,
      slotRowBytes: layout.columns.reduce((sum, column) => sum + column.bytes, 0),
    };
  });
}

function options(flags: Flags): OrderOptions {
  const { ranks, batch, gradAccum, shuffle, shuffleMemory, lanes, window, unit, last } = flags;
  const result: OrderOptions = { seed: 0n, globalBatch: ranks * batch * gradAccum, shuffle, unit, last };
  if (shuffleMemory !== undefined) result.shuffleMemory = parseSize(shuffleMemory, "--shuffle-memory");
  if (lanes !== undefined) result.lanes = lanes;
  if (window !== undefined) result.window = window;
  return result;
}

function asText({ data, order, node, storage, epoch, betterLanes, notes }: Plan, { nodes, ranks }: Flags): string {
  const percent = (share: number) => `${(share * 100).toFixed(share >= 0.9995 || share === 0 ? 0 : 1)} %`;
  const mode = order.held ? "global, held in memory" : order.shuffle;
  const rows: [string, string][] = [
    [
      "data",
      `${formatCount(data.shards)} shards, ${formatSize(data.bytes)}, ${formatCount(data.samples)} samples of ${formatSize(data.recordBytes)}`,
    ],
    [
      "order",
      `${mode}: ${formatCount(order.lanes)} lanes, ${formatCount(order.extents)} extents of ${formatSize(order.extentBytes)}`,
    ],
    ["shuffle window", `${formatCount(order.shuffleWindow)} samples (${formatCount(order.window)} a lane)`],
    [
      "steps an epoch",
      `${formatCount(order.steps)}, optimizer steps ${formatCount(order.optimizerSteps)} of ${formatCount(order.globalBatch)} samples`,
    ],
    [
      "memory a node",
      `${formatSize(node.memory.total)}: rows ${formatSize(node.memory.rows)} (${formatCount(node.lanes)} lanes), raw ${formatSize(node.memory.raw)}, slots ${formatSize(node.memory.slots)}`,
    ],
    [
      "opens a node",
      `${formatCount(node.opens)} of ${formatCount(data.shards)} shards in an epoch, each once at a time for all its ${formatCount(ranks / nodes)} ranks`,
    ],
    [
      "reads a node",
      `${formatSize(node.bytes)} in ${formatCount(Math.ceil(node.reads))} reads of ${formatSize(node.readBytes)}; ${percent(node.mergedShare)} of the bytes in reads of 8MiB or more`,
    ],
    [
      "first 1 %",
      `${formatCount(storage.firstPercent.shards)} shards, ${formatCount(storage.firstPercent.extents)} extents`,
    ],
    [
      "amplification",
      `an extent is read by ${storage.readers.toFixed(2)} of ${nodes} nodes (at most ${storage.mostReaders})`,
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

function whole(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value) || value < 1) throw new InvalidArgumentError("must be a whole number ≥ 1.");
  return value;
}

function number(text: string): number {
  const value = Number(text);
  if (!(value > 0) || !Number.isFinite(value)) throw new InvalidArgumentError("must be a number > 0.");
  return value;
}

function oneOf<T extends string>(...values: T[]): (text: string) => T {
  return (text) => {
    const found = values.find((value) => value === text);
    if (found === undefined) throw new InvalidArgumentError(`must be one of ${values.join(", ")}.`);
    return found;
  };
}
