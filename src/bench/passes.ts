/**
 * Passes: runs contenders one after the other, pass by pass, in the same rank processes, and measures them (measure.ts).
 */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DEFAULT_SHUFFLE_MEMORY } from "../order/resolve.ts";
import type { Contender } from "./contenders.ts";
import type { BenchSet } from "./data.ts";
import { measure, openCommand, OPEN_MS, type PassResult, type Setting } from "./measure.ts";
import type { Client, Python } from "./python.ts";
import { Crew, type Hello } from "./rank.ts";

export interface CrewOptions {
  set: BenchSet;
  /** Folder of the memory map; undefined when no contender needs it. */
  memmap: string | undefined;
  ranks: number;
  client: Client;
  python: Python;
  seed: number;
  cold: boolean;
  /** Bytes, for the `window` mode. */
  shuffleMemory: number;
}

/** The naive loader stops here: its spread is small against its distance. */
export const NAIVE_PASSES = 3;

export class Passes {
  private readonly options: CrewOptions;
  private readonly crews = new Map<string, Crew>();
  private runDir: string | undefined;

  get ranks(): number {
    return this.options.ranks;
  }

  constructor(options: CrewOptions) {
    this.options = options;
  }

  /** What the first rank says of its software; starts the crew when there is none yet. */
  async hello(contender: Contender): Promise<Hello> {
    return (await this.crew(contender)).hello[0]!;
  }

  /** Reads all files once (warm), so that the first pass finds what the later ones find. */
  async warm(contender: Contender): Promise<void> {
    await this.cache(await this.crew(contender), false);
  }

  async one(contender: Contender, setting: Setting, pass: number): Promise<PassResult> {
    const crew = await this.crew(contender);
    if (this.options.cold) await this.cache(crew, true);
    const { ranks, ...common } = this.options;
    const { batch } = setting;
    const open = (rank: number, job: string) => openCommand({ ...common, contender, rank, world: ranks, batch, job });
    return measure(crew, { contender, setting, pass, width: common.set.width, open });
  }

  async stop(): Promise<void> {
    await Promise.all([...this.crews.values()].map((crew) => crew.stop()));
    this.crews.clear();
    if (this.runDir !== undefined) await rm(this.runDir, { recursive: true, force: true });
    this.runDir = undefined;
  }

  private async crew(contender: Contender): Promise<Crew> {
    const { ranks, python, client } = this.options;
    const known = this.crews.get(contender.name);
    if (known !== undefined) return known;
    // The agents of a run come one after the other; their socket and log lie in a folder that goes with the run.
    this.runDir ??= await mkdtemp(join(tmpdir(), "athanor-bench-run-"));
    const crew = await Crew.start(contender.name, ranks, python, client, this.runDir);
    this.crews.set(contender.name, crew);
    return crew;
  }

  private async cache(crew: Crew, drop: boolean): Promise<void> {
    const { set, memmap } = this.options;
    const paths = set.shards.map(([path]) => path);
    if (memmap !== undefined) paths.push(`${memmap}/ids.i32`, `${memmap}/mask.i8`);
    await crew.all((rank) => (rank === 0 ? { cmd: "cache", drop, paths } : { cmd: "cache", drop, paths: [] }), OPEN_MS);
  }
}

/**
 * Shuffle memory for the `window` mode: the job's default, but a quarter of the view when the view would fit, which
 * would resolve to `global` and hold all rows. `lowered`: whether that was done.
 */
export function windowMemory(
  samples: number,
  width: number,
  wanted = DEFAULT_SHUFFLE_MEMORY,
): { bytes: number; lowered: boolean } {
  // Nominal row bytes of the order: two delivered columns of `width` values, 4 bytes each.
  const view = samples * 2 * width * 4;
  return view <= wanted
    ? { bytes: Math.max(1, Math.floor(view / 4)), lowered: true }
    : { bytes: wanted, lowered: false };
}
