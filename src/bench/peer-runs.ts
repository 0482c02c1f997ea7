/**
 * Runs of the contenders of `athanor bench peers`: one zygote a library, one measurement a call, in fresh processes.
 *
 * Memory is counted over a process that loads nothing, in the same number of ranks and the same pass: anonymous pages of a
 * rank in whole (it is a fork, but in a training job it would not be), pages of files and shared memory by their share,
 * the zygote's pages of files with them (they are those of the ranks), the agent's PSS.
 */
import { freePort } from "../base/free-port.ts";
import type { BenchSet } from "./data.ts";
import { BenchData } from "./errors.ts";
import { endAgent, measure, openCommand, OPEN_MS, type PassResult, type Setting } from "./measure.ts";
import { NOTHING, type PeerContender } from "./peer-list.ts";
import { filePss } from "./proc.ts";
import type { Python } from "./python.ts";
import { Crew, type Hello, Zygote } from "./rank.ts";

export interface PeerPass extends PassResult {
  /** Over a process that loads nothing; `mapped`: pages of files in it, which the kernel can take back. */
  over?: { bytes: number; mapped: number };
  /** Cold: share of the files that was in the page cache when the loader was opened. */
  resident?: number;
}

export interface RunsOptions {
  set: BenchSet;
  memmap: string;
  folderOf(data: string): string;
  runDir: string;
  seed: number;
  /** Bytes, for the `window` mode. */
  shuffleMemory: number;
}

/** Of a file's pages this much may stay, such as a page that another process has mapped. */
const RESIDENT_LIMIT = 0.05;

export class PeerRuns {
  readonly options: RunsOptions;
  /** By loader: contenders that differ in a mode or in workers have the same imports. */
  private readonly zygotes = new Map<string, { zygote: Zygote; python: Python }>();
  /** Bytes of a contender's files, by name. */
  private readonly sizes = new Map<string, number>();
  /** Athanor's, near the start of its first epoch. */
  private state: Record<string, unknown> | undefined;
  private readonly base = new Map<string, { bytes: number; mapped: number }>();

  constructor(options: RunsOptions) {
    this.options = options;
  }

  /** Imports, reads the files once, and looks whether the rows of the first batches are rows of the set. */
  async prepare(contender: PeerContender, python: Python): Promise<void> {
    const { runDir } = this.options;
    const { loader, packages, name } = contender;
    let made: Zygote | undefined;
    if (!this.zygotes.has(loader)) {
      made = await Zygote.start(loader, { loader, packages, python, runDir });
      this.zygotes.set(loader, { zygote: made, python });
    }
    try {
      const bytes = await this.with(contender, 1, async (crew) => {
        const found = await this.cache(crew, contender, false);
        if (contender !== NOTHING) await this.check(crew, contender);
        return found.bytes;
      });
      this.sizes.set(name, bytes);
    } catch (error) {
      if (made !== undefined) {
        this.zygotes.delete(loader);
        await made.stop();
      }
      throw error;
    }
  }

  /** Reads its files once. */
  async warm(contender: PeerContender): Promise<void> {
    await this.with(contender, 1, async (crew) => this.cache(crew, contender, false));
  }

  hello(contender: PeerContender): Hello {
    return this.entry(contender).zygote.hello;
  }

  python(contender: PeerContender): Python {
    return this.entry(contender).python;
  }

  /** Size of its files. */
  bytes(contender: PeerContender): number {
    return this.sizes.get(contender.name) ?? 0;
  }

  /** `files`: dropped from the page cache before, or read once; undefined: as they lie. */
  async one(
    contender: PeerContender,
    ranks: number,
    setting: Setting,
    pass: number,
    files?: "drop" | "read",
  ): Promise<PeerPass> {
    const { zygote } = this.entry(contender);
    return this.with(contender, ranks, async (crew) => {
      const resident = files === "drop" ? await this.drop(crew, contender) : undefined;
      if (files === "read") await this.cache(crew, contender, false);
      const open = (rank: number, job: string) => this.open(contender, setting.batch, rank, ranks, job);
      const { width } = this.options.set;
      const result = await measure(crew, { contender, setting, pass, width, open, memory: true });
      const base = this.base.get(`${ranks} ${setting.batch} ${pass}`);
      const shared = filePss(zygote.hello.pid) ?? 0;
      const memory = { bytes: result.memory!.bytes + shared, mapped: result.memory!.mapped + shared };
      return {
        ...result,
        memory,
        ...(base === undefined
          ? {}
          : { over: { bytes: memory.bytes - base.bytes, mapped: memory.mapped - base.mapped } }),
        ...(resident === undefined ? {} : { resident }),
      };
    });
  }

  /** Athanor, one rank, that goes on at a place of the first epoch (0 … 1): see the times to its first batch. */
  async resumed(contender: PeerContender, batch: number, at: number, pass: number): Promise<PassResult> {
    const { set } = this.options;
    return this.with(contender, 1, async (crew) => {
      this.state ??= await this.stateOf(crew, contender, batch);
      const resume = { ...this.state, position: String(Math.floor((set.samples * at) / batch) * batch) };
      const setting = { batch, stepMs: 0, seconds: 0.1 };
      const open = (rank: number, job: string) => ({ ...this.open(contender, batch, rank, 1, job), resume });
      return measure(crew, { contender, setting, pass, width: set.width, open });
    });
  }

  /** The memory of ranks that load nothing, for the measurements of this pass. */
  async empty(ranks: number, batch: number, pass: number): Promise<void> {
    const key = `${ranks} ${batch} ${pass}`;
    if (this.base.has(key)) return;
    const { memory } = await this.one(NOTHING, ranks, { batch, stepMs: 0, seconds: 0.2 }, pass);
    this.base.set(key, memory!);
  }

  /** The command that opens a contender on a rank. */
  open(contender: PeerContender, batch: number, rank: number, world: number, job: string): Record<string, unknown> {
    return {
      ...openCommand({ ...this.options, contender, client: "torch", rank, world, batch, job }),
      folder: this.options.folderOf(contender.data),
      workers: contender.workers,
    };
  }

  async stop(): Promise<void> {
    await Promise.all([...this.zygotes.values()].map(({ zygote }) => zygote.stop()));
    this.zygotes.clear();
  }

  private async stateOf(crew: Crew, contender: PeerContender, batch: number): Promise<Record<string, unknown>> {
    const job = `bench-${process.pid}-state`;
    try {
      await crew.all(() => this.open(contender, batch, 0, 1, job), OPEN_MS);
      const states = await crew.all<Record<string, unknown>>(() => ({ cmd: "state" }), OPEN_MS);
      await crew.all(() => ({ cmd: "close" }), OPEN_MS);
      return states[0]!;
    } finally {
      await endAgent(job);
    }
  }

  private async check(crew: Crew, contender: PeerContender): Promise<void> {
    const { set, memmap } = this.options;
    const job = `bench-${process.pid}-check-${this.sizes.size}`;
    try {
      await crew.all(() => this.open(contender, Math.min(8, set.samples), 0, 1, job), OPEN_MS);
      await crew.all(() => ({ cmd: "check", memmap }), OPEN_MS);
      await crew.all(() => ({ cmd: "close" }), OPEN_MS);
    } finally {
      await endAgent(job); // it would serve whoever comes next in this run directory
    }
  }

  private async with<T>(contender: PeerContender, ranks: number, work: (crew: Crew) => Promise<T>): Promise<T> {
    const crew = await Crew.fork(this.entry(contender).zygote, ranks, await freePort());
    try {
      return await work(crew);
    } finally {
      await crew.stop();
    }
  }

  private async drop(crew: Crew, contender: PeerContender): Promise<number> {
    const { bytes, resident } = await this.cache(crew, contender, true);
    const share = resident / bytes;
    if (share > RESIDENT_LIMIT) {
      const found = `${(100 * share).toFixed(0)} % of its files stayed in the page cache`;
      throw new BenchData(
        `${contender.name}: ${found}`,
        {},
        "another process has them mapped, or the file system keeps them",
      );
    }
    return share;
  }

  private async cache(
    crew: Crew,
    contender: PeerContender,
    drop: boolean,
  ): Promise<{ bytes: number; resident: number }> {
    const paths = [this.options.folderOf(contender.data)];
    const ask = (rank: number) => ({ cmd: "cache", drop, paths: rank === 0 ? paths : [] });
    return (await crew.all<{ bytes: number; resident: number }>(ask, OPEN_MS))[0]!;
  }

  private entry(contender: PeerContender): { zygote: Zygote; python: Python } {
    const found = this.zygotes.get(contender.loader);
    if (found === undefined) throw new BenchData(`${contender.name} has not been started`);
    return found;
  }
}
