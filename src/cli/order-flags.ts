/** Flags of the order, as the loader's arguments of the same names; for the commands that compute one. */
import { InvalidArgumentError, type Command } from "commander";
import { parseSize } from "../base/units.ts";
import type { OrderOptions } from "../order/types.ts";

export interface OrderFlags {
  shuffle: "window" | "global" | "none";
  shuffleMemory?: string;
  lanes?: number;
  window?: number;
  unit: "extent" | "shard";
  last: "carry" | "drop" | "pad";
}

export function addOrderFlags(command: Command): Command {
  return command
    .option("--shuffle <mode>", "window, global or none", oneOf("window", "global", "none"), "window")
    .option("--shuffle-memory <size>", "bytes of all windows of the job together (default: 1GiB)")
    .option("--lanes <n>", "lanes of the order (default: by the size of the set)", whole)
    .option("--window <n>", "samples of a lane that are shuffled together (default: by the shuffle memory)", whole)
    .option("--unit <unit>", "extent or shard: what is permuted", oneOf("extent", "shard"), "extent")
    .option("--last <rule>", "carry, drop or pad", oneOf("carry", "drop", "pad"), "carry");
}

export function orderOptions(flags: OrderFlags, seed: bigint, globalBatch: number): OrderOptions {
  const { shuffle, shuffleMemory, lanes, window, unit, last } = flags;
  const result: OrderOptions = { seed, globalBatch, shuffle, unit, last };
  if (shuffleMemory !== undefined) result.shuffleMemory = parseSize(shuffleMemory, "--shuffle-memory");
  if (lanes !== undefined) result.lanes = lanes;
  if (window !== undefined) result.window = window;
  return result;
}

export function whole(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value) || value < 1) throw new InvalidArgumentError("must be a whole number ≥ 1.");
  return value;
}

function oneOf<T extends string>(...values: T[]): (text: string) => T {
  return (text) => {
    const found = values.find((value) => value === text);
    if (found === undefined) throw new InvalidArgumentError(`must be one of ${values.join(", ")}.`);
    return found;
  };
}
