/** `athanor state skip STATE --batches N | --samples N | --from-step A --to-step B`: leaves samples out, on purpose. */
import { realpath } from "node:fs/promises";
import type { Command } from "commander";
import { Usage } from "../base/usage.ts";
import { readState, writeState } from "../dataset/state-file.ts";
import { skip } from "../order/skip.ts";
import type { SkipAmount } from "../order/skip.ts";
import { printLine, wantsJson } from "./command.ts";
import { whole } from "./order-flags.ts";
import { skipText, stateText } from "./state-text.ts";

interface Flags {
  batches?: number;
  samples?: number;
  fromStep?: number;
  toStep?: number;
  out?: string;
  inPlace?: boolean;
}

export function registerSkip(state: Command, what: string): void {
  state
    .command("skip")
    .description("a new state that leaves out whole optimizer batches (loss-spike surgery)")
    .argument("<state>", what)
    .option("--batches <n>", "so many optimizer batches", whole)
    .option("--samples <n>", "so many samples, rounded up to a whole optimizer batch", whole)
    .option("--from-step <a>", "optimizer steps from a, the one after the state's, or one that lies behind it …", whole)
    .option("--to-step <b>", "… to b, both left out", whole)
    .option("--out <file>", "where the new state goes")
    .option("--in-place", "write over the state that was given")
    .action(async (path: string, flags: Flags, command: Command) => {
      const amount = amountOf(flags);
      const { state: before, file } = await readState(path);
      const target = await targetOf(flags, file);
      const skipped = skip(before, amount);
      await writeState(target, skipped.state);
      await printLine(
        wantsJson(command)
          ? JSON.stringify({ ...skipped, file: target })
          : `${skipText(skipped)}\n\n${target}:\n${stateText(skipped.state)}`,
      );
    });
}

function amountOf({ batches, samples, fromStep, toStep }: Flags): SkipAmount {
  const hasRange = fromStep !== undefined && toStep !== undefined;
  const given = [batches, samples, fromStep ?? toStep].filter((value) => value !== undefined).length;
  if (given !== 1 || (fromStep !== undefined) !== (toStep !== undefined))
    throw new Usage("give one of --batches N, --samples N, and --from-step A with --to-step B");
  if (hasRange && toStep < fromStep) throw new Usage(`--to-step must be at least ${fromStep}, got ${toStep}`);
  if (hasRange) return { fromStep, toStep };
  return batches === undefined ? { samples: samples! } : { batches };
}

async function targetOf({ out, inPlace }: Flags, file: string): Promise<string> {
  if ((out === undefined) === (inPlace !== true)) throw new Usage("give one of --out FILE and --in-place");
  if (out === undefined) return file;
  const there = await realpath(out).catch(() => undefined);
  if (there !== undefined && there === (await realpath(file)))
    throw new Usage("--out names the state that was given", { file: out }, "give --in-place to write over it");
  return out;
}
