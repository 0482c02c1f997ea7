/**
 * Bars of `athanor bench bill`: what Athanor is held to on Lustre, and by calls where nothing better can be counted. Pure.
 *
 * The measure of a sample is 2 KB, so that sets of other samples are held to the same: a request a 2,048,000 bytes wanted.
 */
import type { Cost, Source } from "./bill-meter.ts";

export interface BillBar {
  what: string;
  /** Must not be passed. */
  bar: number;
  value: number;
  met: boolean;
}

/** Smaller ones have more borders, opens and reads for their bytes. */
export const SHARD_BYTES = 64 * 2 ** 20;
const THOUSAND_SAMPLES = 1000 * 2048;

/** None where shards are smaller than 64 MiB, nothing but /proc tells, or no read was seen: then nothing was counted, and nothing met. */
export function billBars(
  set: { bytes: number; samples: number; shards: readonly unknown[] },
  source: Source,
  { samples, needed, start, run, end }: { samples: number; needed: number; start: Cost; run: Cost; end: Cost },
): BillBar[] {
  if (set.bytes / set.shards.length < SHARD_BYTES || source === "/proc") return [];
  if (start.reads + run.reads === 0) return [];
  const counted = source === "client counters";
  // By calls those of the shards alone, the first opens too: counters do not tell an index from a shard, and the start reads the index.
  const metadata = counted ? [run, end] : [start, run, end];
  const epochs = Math.max(1, samples / set.samples);
  const shards = set.shards.length * (counted ? samples / set.samples : epochs);
  return [
    bar(
      counted ? "read requests a 1000 samples of 2 KB" : "read calls a 1000 samples of 2 KB",
      1,
      (run.reads * THOUSAND_SAMPLES) / needed,
    ),
    bar(counted ? "bytes on the wire / bytes wanted" : "bytes asked / bytes wanted", 1.02, run.bytes / needed),
    bar(
      counted
        ? "metadata operations a shard an epoch, start apart"
        : "opens, closes, stats by name a shard an epoch, start included",
      2,
      metadata.reduce((sum, cost) => sum + (cost.metadata ?? 0), 0) / shards,
    ),
  ];
}

function bar(what: string, most: number, value: number): BillBar {
  return { what, bar: most, value, met: value <= most };
}
