/**
 * Hostile input for a `ColumnFormat`: seeded damage of valid shards goes through detect, scan and columns, as `athanor index`
 * and the feed would call them. Each damaged shard must give values or errors with a code: never another exception, a hang
 * or more memory than HOSTILE_BYTES; and columns() must give what scan() gave.
 *
 * @example
 * const report = await hostile(jsonl, [shardOf("a.jsonl", bytes)], 300, { seed: 1 });
 * assert.ok(report.refused > 0 && report.read > 0);
 */
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { Worker } from "node:worker_threads";
import { AthanorError } from "../../src/base/errors.ts";
import type { ColumnFormat, ScanEnd, ScannedBlock } from "../../src/formats/types.ts";
import { checkBlocks, contentOf, scanShard, tryColumns, type TestShard } from "./blocks.ts";
import { damage, generator, type Random } from "./damage.ts";

/** CPU time of one damaged shard. */
export const HOSTILE_CPU_MS = 5000;
/** Memory of the process above what it had before the first one. */
export const HOSTILE_BYTES = 512 * 1024 * 1024;

export interface HostileOptions {
  /** The same seed makes the same damage. @default 1 */
  seed?: number;
  /** Only this one of the mutations: for looking into a failure. */
  only?: number;
  /** Told now and then how many are done, by scripts. */
  progress?: (done: number) => void;
}

export interface HostileReport {
  /** Damaged shards that were read to their end, and such that a coded error refused. */
  read: number;
  refused: number;
  /** How often each code came. */
  codes: Record<string, number>;
}

/** Throws an assertion that names seed and number of the mutation and the damage: `only` runs it again. */
export async function hostile(
  format: ColumnFormat,
  shards: readonly TestShard[],
  mutations: number,
  options: HostileOptions = {},
): Promise<HostileReport> {
  const { seed = 1, only } = options;
  await format.ready?.();
  const valid = await Promise.all(shards.map((shard) => validScan(format, shard)));
  const report: HostileReport = { read: 0, refused: 0, codes: {} };
  const watchdog = new Watchdog(`${format.name} seed ${seed}`);
  const peakBefore = peakBytes();
  try {
    for (let number = only ?? 0; number < (only === undefined ? mutations : only + 1); number++) {
      const random = generator(seed * 1_000_003 + number);
      const which = random(shards.length);
      const { shard, damages } = damagedShard(shards[which]!, shards, random);
      const name = `${format.name} seed ${seed} mutation ${number}: ${damages.join(", ")}`;
      watchdog.tick(number);
      const cpu = process.cpuUsage();
      try {
        await readDamaged(format, shard, valid[which]!, random, report);
      } catch (error) {
        throw new assert.AssertionError({
          message: `${name}: ${error instanceof Error ? error.stack : String(error)}`,
        });
      }
      const { user, system } = process.cpuUsage(cpu);
      assert.ok((user + system) / 1000 <= HOSTILE_CPU_MS, `${name}: took ${(user + system) / 1000} ms of CPU time`);
      const grown = peakBytes() - peakBefore;
      assert.ok(grown <= HOSTILE_BYTES, `${name}: memory grew by ${grown} bytes`);
      if (number % 100 === 99) options.progress?.(number + 1);
    }
  } finally {
    await watchdog.stop();
  }
  return report;
}

/** High-water mark of the process's memory: sees also what was given back in between. */
function peakBytes(): number {
  return process.resourceUsage().maxRSS * 1024;
}

interface Whole {
  blocks: ScannedBlock[];
  end: ScanEnd;
}

async function readDamaged(
  format: ColumnFormat,
  damaged: TestShard,
  valid: Whole,
  random: Random,
  report: HostileReport,
): Promise<void> {
  const folder = format.selfReading === true ? mkdtempSync(join(tmpdir(), "athanor-hostile-")) : undefined;
  try {
    const shard = folder === undefined ? damaged : placed(damaged, folder);
    const codes = new Set<string>();
    const coded = (error: unknown): void => {
      // What is no AthanorError is a defect, whoever threw it.
      if (!(error instanceof AthanorError) || !error.code.startsWith("ATH_") || error.code === "ATH_INTERNAL")
        throw error;
      codes.add(error.code);
    };
    const head = shard.files[0]!.bytes.subarray(0, 4096);
    format.detect(head, shard.path);
    let found: Whole | undefined;
    try {
      found = await scanShard(format, shard, random(2) === 0 ? {} : { onBad: () => undefined });
    } catch (error) {
      coded(error);
    }
    for (const block of found?.blocks ?? []) for (const fault of block.columns.faults.values()) coded(fault);
    // As the feed would after the index was made of these very bytes.
    if (found !== undefined) await checkBlocks(format, shard, found.blocks, found.end, random);
    // As it would where a shard was damaged behind its index.
    let content: readonly Uint8Array[] | undefined;
    try {
      content = await contentOf(shard, valid.end.encoding, valid.end);
    } catch (error) {
      coded(error);
    }
    if (content !== undefined) await tryColumns(format, shard, content, valid.blocks, valid.end, coded);
    report[found === undefined || codes.size > 0 ? "refused" : "read"]++;
    for (const code of codes) report.codes[code] = (report.codes[code] ?? 0) + 1;
  } finally {
    if (folder !== undefined) rmSync(folder, { recursive: true, force: true });
  }
}

async function validScan(format: ColumnFormat, shard: TestShard): Promise<Whole> {
  if (format.selfReading !== true) return scanShard(format, shard);
  const root = mkdtempSync(join(tmpdir(), "athanor-hostile-"));
  try {
    return await scanShard(format, placed(shard, root));
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
}

/** One to three pieces of damage in files of a shard. */
function damagedShard(
  shard: TestShard,
  shards: readonly TestShard[],
  random: Random,
): { shard: TestShard; damages: string[] } {
  const files = shard.files.map((file) => ({ ...file }));
  const donors = shards.flatMap((one) => one.files.map(({ bytes }) => bytes)).filter(({ length }) => length > 0);
  const damages: string[] = [];
  for (let left = random(3); left >= 0; left--) {
    const file = files[random(files.length)]!;
    const { bytes, what } = damage(file.bytes, donors, random);
    file.bytes = bytes;
    damages.push(`${file.path}: ${what}`);
  }
  return { shard: { ...shard, files }, damages };
}

/** Writes the files of a shard below a folder. */
function placed(shard: TestShard, root: string): TestShard {
  for (const { path, bytes } of shard.files) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), bytes);
  }
  return { ...shard, root };
}

/** Ends the process when one mutation takes 60 s: a parser that never returns cannot be stopped from its own thread. */
class Watchdog {
  private readonly at = new Int32Array(new SharedArrayBuffer(4));
  private readonly worker: Worker;

  constructor(name: string) {
    const source = `
      const { workerData: { at, name } } = require("node:worker_threads");
      let seen = -1, since = Date.now();
      setInterval(() => {
        const now = Atomics.load(at, 0);
        if (now !== seen) { seen = now; since = Date.now(); }
        else if (Date.now() - since > 60000) {
          require("node:fs").writeSync(2, "hangs: " + name + " mutation " + now + "\\n");
          process.kill(process.pid, "SIGKILL");
        }
      }, 500);`;
    this.worker = new Worker(source, { eval: true, workerData: { at: this.at, name } });
    this.worker.unref();
  }

  tick(number: number): void {
    Atomics.store(this.at, 0, number);
  }

  async stop(): Promise<void> {
    await this.worker.terminate();
  }
}
