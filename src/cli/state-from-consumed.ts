/** `athanor state from-consumed`: a state at a number of samples that another trainer has consumed. */
import { InvalidArgumentError, type Command } from "commander";
import { formatNumber } from "../base/units.ts";
import { IndexMissing, indexCommand } from "../dataset/errors.ts";
import { openIndex } from "../dataset/index-read.ts";
import { writeState } from "../dataset/state-file.ts";
import { SOURCE_NAME, viewOf } from "../feed/order-view.ts";
import { planSingle } from "../order/job.ts";
import { advance } from "../order/skip.ts";
import { stateOf } from "../order/state.ts";
import { printLine, wantsJson, withStorage } from "./command.ts";
import { addOrderFlags, orderOptions, whole } from "./order-flags.ts";
import type { OrderFlags } from "./order-flags.ts";
import { stateText } from "./state-text.ts";

interface Flags extends OrderFlags {
  data: string;
  consumedSamples: number;
  globalBatchSize: number;
  maxLength: number;
  columns?: string;
  sampleRule?: string;
  seed?: bigint;
  indexDir?: string;
  out: string;
}

export function registerFromConsumed(state: Command): void {
  const command = state
    .command("from-consumed")
    .description("a state that goes on at Megatron's consumed_samples, in Athanor's own order")
    .requiredOption("--data <path>", "the data, as the loader is given it (indexed)")
    .requiredOption("--consumed-samples <n>", "samples delivered before", atLeast0)
    .requiredOption("--global-batch-size <n>", "samples of one optimizer step over all ranks", whole)
    .requiredOption("--out <file>", "where the state goes")
    .option("--max-length <n>", "as the loader's max_length", whole, 512)
    .option("--columns <names>", "as the loader's columns, a,b,c (default: all that can be delivered)")
    .option("--sample-rule <rule>", "as the loader's sample_rule (default: the format's own)")
    .option("--seed <n>", "as the loader's seed (default: 0)", seedOf)
    .option("--index-dir <dir>", "where the index lies when the data is read-only");
  addOrderFlags(command).action(async (flags: Flags, from: Command) => {
    const { state: made, extra } = await withStorage(async (storage) => {
      const index = await openIndex(flags.data, { storage, indexDir: flags.indexDir });
      if (index === undefined)
        throw new IndexMissing("there is no index", { file: flags.data }, indexCommand(flags.data, flags.indexDir));
      const columns = flags.columns?.split(",");
      const { maxLength, sampleRule } = flags;
      const { view } = await viewOf(index, { columns, maxLength, padId: 0, strict: false, sampleRule }, storage);
      const options = orderOptions(flags, flags.seed ?? 0n, flags.globalBatchSize);
      return advance(stateOf(planSingle(SOURCE_NAME, view, options), 0), flags.consumedSamples);
    });
    await writeState(flags.out, made);
    if (wantsJson(from)) {
      await printLine(JSON.stringify({ state: made, extra, file: flags.out }));
      return;
    }
    const lines = [stateText(made)];
    if (extra > 0) lines.push(`${formatNumber(extra, "sample")} more than consumed, up to a whole optimizer batch`);
    lines.push(
      "the order is Athanor's, not Megatron's: the count goes on, but samples that were consumed there may come again in this epoch, and others may not come",
    );
    await printLine(lines.join("\n"));
  });
}

function atLeast0(text: string): number {
  const value = Number(text);
  if (text.trim() === "" || !Number.isSafeInteger(value) || value < 0)
    throw new InvalidArgumentError("must be a whole number ≥ 0.");
  return value;
}

function seedOf(text: string): bigint {
  if (!/^\d{1,20}$/.test(text) || BigInt(text) >= 1n << 64n)
    throw new InvalidArgumentError("must be a whole number from 0 to 2^64 − 1.");
  return BigInt(text);
}
