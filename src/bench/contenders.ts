/** Contenders: the loaders a run compares, in the order of the table. */
import { Usage } from "../base/usage.ts";

export const CONTENDERS = ["naive", "memmap", "memmap_batch", "athanor"] as const;
export type ContenderName = (typeof CONTENDERS)[number];
export type Mode = "window" | "global";

export interface Contender {
  /** Name in tables: `memmap`, `athanor window`. */
  name: string;
  /** As worker.py knows it. */
  loader: string;
  /** Athanor only. */
  mode: Mode | undefined;
}

/** `names`: a comma list; Athanor appears once a mode. */
export function contenders(names: string, mode: Mode | "both"): Contender[] {
  const wanted = names.split(",").map((name) => name.trim());
  const unknown = wanted.find((name) => !CONTENDERS.some((known) => known === name));
  if (unknown !== undefined) {
    throw new Usage(`contenders must be of ${CONTENDERS.join(", ")}, got ${JSON.stringify(unknown)}`);
  }
  const modes: Mode[] = mode === "both" ? ["window", "global"] : [mode];
  return CONTENDERS.filter((name) => wanted.includes(name)).flatMap((loader) =>
    loader === "athanor"
      ? modes.map((each): Contender => ({ name: `athanor ${each}`, loader, mode: each }))
      : [{ name: loader, loader, mode: undefined }],
  );
}

/** What each contender is, for the foot of the table. */
export const EXPLAINED: Record<ContenderName, string> = {
  naive:
    "the story's Dataset without TensorFlow: opens the shard and walks its records up to the sample (no CRC check, skipped records not parsed)",
  memmap: "PyTorch map-style over a memory map (int32 ids, int8 mask), default collate, num_workers 0",
  memmap_batch: "the same memory map, one fancy index a batch, no collate",
  athanor: "one agent a node, ready batches through shared memory",
};
