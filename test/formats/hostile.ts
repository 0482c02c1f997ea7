/**
 * Hostile input for a format: seeded damage of valid shards goes through detect, scan (`athanor cat`), index (`athanor index`, and with
 * `everything` `athanor verify`) and the decoding of blocks, as the feed would call them. Each damaged shard must give values or errors with
 * a code: never another exception, a hang or more memory than HOSTILE_BYTES; columns() must give what scan() gave, and `verify`
 * refuses what scan() refuses. Formats of rows: see hostile-rows.ts.
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
import type { ColumnFormat, Format, ScanEnd, ScannedBlock } from "../../src/formats/types.ts";
import { checkBlocks, contentOf, indexShard, scanShard, tryColumns, type TestShard } from "./blocks.ts";
import { damage, generator, type Random } from "./damage.ts";
import { damagedRecords, readDamagedRows, validRows } from "./hostile-rows.ts";

/** CPU time of one damaged shard. */
export const HOSTILE_CPU_MS = 5000;
/** A parser that never returns ends the process after so long. */
const HANG_MS = 60_000;
/** Memory of the process above what it had before the first one. */
export const HOSTILE_BYTES = 512 * 1024 * 1024;

export interface HostileOptions {
  /** The same seed makes the same damage. @default 1 */
  seed?: number;
  /** Only this one of the mutations: for looking into a failure. */
  only?: number;
  /** Bounds, for tests of this file. @default HOSTILE_CPU_MS */
  cpuMs?: number;
  /** @default HANG_MS */
  hangMs?: number;
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
  format: Format,
  shards: readonly TestShard[],
  mutations: number,
  options: HostileOptions = {},
): Promise<HostileReport> {
  const { seed = 1, only, cpuMs = HOSTILE_CPU_MS, hangMs = HANG_MS } = options;
  if (format.kind === "columns") await format.ready?.();
  const read = await readerOf(format, shards);
  const report: HostileReport = { read: 0, refused: 0, codes: {} };
  const watchdog = new Watchdog(`${format.name} seed ${seed}`, hangMs);
  const peakBefore = peakBytes();
  try {
    for (let number = only ?? 0; number < (only === undefined ? mutations : only + 1); number++) {
      const random = generator(seed * 1_000_003 + number);
      const which = random(shards.length);
      // Checksums stop most damage of rows: half of it is done inside records, whose checksums are made anew.
      const inside = format.kind === "rows" && random(2) === 0;
      const damagedOne = inside ? damagedRecords(shards[which]!, random) : damagedShard(shards[which]!, shards, random);
      const { shard, damages } = damagedOne;
      const name = `${format.name} seed ${seed} mutation ${number}: ${damages.join(", ")}`;
      watchdog.tick(number);
      const cpu = process.cpuUsage();
      const codes = new Set<string>();
      try {
        const whole = await read(which, shard, random, (error) => codes.add(codeOf(error)));
        report[whole && codes.size === 0 ? "read" : "refused"]++;
      } catch (error) {
        throw new assert.AssertionError({
          message: `${name}: ${error instanceof Error ? error.stack : String(error)}`,
        });
      }
      for (const code of codes) report.codes[code] = (report.codes[code] ?? 0) + 1;
      const { user, system } = process.cpuUsage(cpu);
      assert.ok((user + system) / 1000 <= cpuMs, `${name}: took ${(user + system) / 1000} ms of CPU time`);
      const grown = peakBytes() - peakBefore;
      assert.ok(grown <= HOSTILE_BYTES, `${name}: memory grew by ${grown} bytes`);
      if (number % 100 === 99) options.progress?.(number + 1);
    }
  } finally {
    await watchdog.stop();
  }
  return report;
}

/** Reads a damaged form of shard `which`; false: it was not read to its end. `coded` gets every error. */
type Read = (which: number, damaged: TestShard, random: Random, coded: (error: unknown) => void) => Promise<boolean>;

async function readerOf(format: Format, shards: readonly TestShard[]): Promise<Read> {
  if (format.kind === "rows") {
    const valid = await Promise.all(shards.map((shard) => validRows(format, shard)));
    return (which, damaged, random, coded) => readDamagedRows(format, damaged, valid[which]!, random, coded);
  }
  const valid = await Promise.all(shards.map((shard) => validScan(format, shard)));
  return (which, damaged, random, coded) => readDamaged(format, damaged, valid[which]!, random, coded);
}

/** What is no AthanorError is a defect, whoever threw it. */
function codeOf(error: unknown): string {
  if (!(error instanceof AthanorError) || !error.code.startsWith("ATH_") || error.code === "ATH_INTERNAL") throw error;
  return error.code;
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
  coded: (error: unknown) => void,
): Promise<boolean> {
  const folder = format.selfReading === true ? mkdtempSync(join(tmpdir(), "athanor-hostile-")) : undefined;
  try {
    const shard = folder === undefined ? damaged : placed(damaged, folder);
    const head = shard.files[0]!.bytes.subarray(0, 4096);
    format.detect(head, shard.path);
    const options = random(2) === 0 ? {} : { onBad: () => undefined };
    let found: Whole | undefined;
    try {
      found = await scanShard(format, shard, options);
    } catch (error) {
      coded(error);
    }
    const faults = found?.blocks.flatMap(({ columns }) => [...columns.faults.values()]) ?? [];
    faults.forEach(coded);
    const everything = random(2) === 0;
    let indexed = false;
    try {
      await indexShard(format, shard, { ...options, everything });
      indexed = everything;
    } catch (error) {
      coded(error);
    }
    const refused = found === undefined || (faults.length > 0 && options.onBad === undefined);
    assert.ok(!(refused && indexed), "verify takes what scan() refuses");
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
    return found !== undefined;
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

/** Ends the process when one mutation takes too long: a parser that never returns cannot be stopped from its own thread. */
class Watchdog {
  private readonly at = new Int32Array(new SharedArrayBuffer(4));
  private readonly worker: Worker;

  constructor(name: string, hangMs: number) {
    const source = `
      const { workerData: { at, name, hangMs } } = require("node:worker_threads");
      let seen = -1, since = Date.now();
      setInterval(() => {
        const now = Atomics.load(at, 0);
        if (now !== seen) { seen = now; since = Date.now(); }
        else if (Date.now() - since > hangMs) {
          require("node:fs").writeSync(2, "hangs: " + name + " mutation " + now + "\\n");
          process.kill(process.pid, "SIGKILL");
        }
      }, Math.min(500, hangMs));`;
    this.worker = new Worker(source, { eval: true, workerData: { at: this.at, name, hangMs } });
    this.worker.unref();
  }

  tick(number: number): void {
    Atomics.store(this.at, 0, number);
  }

  async stop(): Promise<void> {
    await this.worker.terminate();
  }
}
