/**
 * Formats: the same samples in every format, read by Athanor and by the format's own reader, interleaved pass by pass.
 *
 * Contract: each measurement is a process of its own (`athanor.bench.formats.measure`), so that no library disturbs another; a
 * format without its peer on this Python is measured alone, and one whose writer is missing is left out and named. Athanor is
 * indexed once before, and the time of that is printed.
 *
 * @example
 * const report = await benchFormats({ folder: "/tmp/f", formats: ["parquet"], passes: 5, … }, { say: console.error });
 */
import { execFile } from "node:child_process";
import { mkdir, readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { pythonCode, pythonModule } from "../base/python.ts";
import { buildIndex } from "../dataset/index-build.ts";
import { createPosixStorage } from "../storage/posix.ts";
import { BenchData, BenchRank } from "./errors.ts";
import { machineFacts, type MachineFacts } from "./machine.ts";
import { findPython, type Python } from "./python.ts";
import { spread, type Spread } from "./statistics.ts";

const run = promisify(execFile);

export const FORMATS = [
  "tfrecord",
  "jsonl",
  "parquet",
  "hdf5-gzip",
  "hdf5-raw",
  "zarr",
  "mds",
  "webdataset",
  "megatron",
  "npy",
] as const;

export interface FormatsOptions {
  /** Where the data is made, once. */
  folder: string;
  formats: readonly string[];
  samples: number;
  width: number;
  batch: number;
  passes: number;
  /** Of one measurement. */
  seconds: number;
  seed: number;
  /** Bytes; below the size of the view, so that windows are shuffled as for a set that does not fit. */
  shuffleMemory: number;
  python?: string;
}

/** Of one reader. */
export interface Figures {
  samplesPerSecond: Spread;
  /** CPU seconds a million samples, of all processes. */
  cpuPerM: Spread;
  /** Of them, without the agent. */
  trainerCpuPerM: Spread;
  /** Stored bytes of an epoch over its time, from the start of the reader. */
  coldMBps: Spread;
}

export interface FormatRow extends Figures {
  format: string;
  bytes: number;
  /** Without the index. */
  files: number;
  indexSeconds: number;
  /** Mean size of a read of the agent; undefined where the format's library reads (HDF5). */
  readBytes: number | undefined;
  /** Decoded once and kept, as the loader does by itself with a set that fits its shuffle memory; the pass that fills it counts. */
  held: { samplesPerSecond: Spread; cpuPerM: Spread };
  /** Undefined: there is none, or it is not installed. `heldRatio`: of what is held. */
  peer: (Figures & { name: string; ratio: Spread; heldRatio: Spread }) | undefined;
}

const READERS = ["athanor", "held", "peer"] as const;
type Reader = (typeof READERS)[number];

export interface FormatsReport {
  machine: MachineFacts;
  options: FormatsOptions;
  rows: FormatRow[];
  /** Formats that could not be written here. */
  left: string[];
}

interface Measured {
  missing?: true;
  samples: number;
  seconds: number;
  cpu_s: number;
  trainer_cpu_s: number;
  /** Of the folder, where they were dropped from the page cache before. */
  bytes: number;
  /** Number and bytes. */
  reads: [number, number];
}

const PEER_NAMES: Record<string, string> = {
  jsonl: "orjson",
  parquet: "pyarrow",
  "hdf5-gzip": "h5py",
  "hdf5-raw": "h5py",
  zarr: "zarr-python",
  mds: "MosaicML Streaming",
  webdataset: "webdataset",
  megatron: "memory map",
  npy: "memory map",
};
/** A cold pass reads a whole epoch; the slowest peer takes a minute for it. */
const DEADLINE_MS = 900_000;

export async function benchFormats(
  options: FormatsOptions,
  { say }: { say: (line: string) => void },
): Promise<FormatsReport> {
  const python = await findPython("torch", options.python);
  const machine = await facts(python);
  const formats = await makeData(options, python, say);
  const indexSeconds = new Map<string, number>();
  for (const format of formats) indexSeconds.set(format, await index(join(options.folder, format), format, say));
  const warm = new Map<string, Record<Reader, Measured[]>>();
  const cold = new Map<string, Record<Reader, Measured[]>>();
  for (const format of formats) {
    warm.set(format, { athanor: [], held: [], peer: [] });
    cold.set(format, { athanor: [], held: [], peer: [] });
  }
  for (let pass = 0; pass < options.passes; pass++) {
    for (const format of formats) {
      for (const reader of READERS) {
        say(`pass ${pass + 1} of ${options.passes}: ${format}, ${reader}`);
        const found = await measure(options, python, format, reader, pass, false);
        if (found.missing === true) continue;
        warm.get(format)![reader].push(found);
        // A cold epoch tells of the disk: three of them are enough.
        if (pass < 3 && reader !== "held")
          cold.get(format)![reader].push(await measure(options, python, format, reader, pass, true));
      }
    }
  }
  const rows: FormatRow[] = [];
  for (const format of formats) {
    const w = warm.get(format)!;
    const c = cold.get(format)!;
    const own = figures(w.athanor, c.athanor);
    const peer = w.peer.length === 0 ? undefined : { name: PEER_NAMES[format]!, ...figures(w.peer, c.peer) };
    const ratios = (own: Measured[]): Spread => spread(w.peer.map((found, i) => rate(own[i]!) / rate(found)));
    const [reads, readBytes] = [0, 1].map((i) => w.athanor.reduce((sum, pass) => sum + pass.reads[i]!, 0));
    rows.push({
      format,
      ...(await contentOf(join(options.folder, format))),
      indexSeconds: indexSeconds.get(format)!,
      readBytes: reads === 0 ? undefined : readBytes! / reads!,
      ...own,
      held: { samplesPerSecond: spread(w.held.map(rate)), cpuPerM: spread(w.held.map(cpuPerM)) },
      peer: peer && { ...peer, ratio: ratios(w.athanor), heldRatio: ratios(w.held) },
    });
  }
  return { machine, options, rows, left: options.formats.filter((format) => !formats.includes(format)) };
}

function figures(warm: Measured[], cold: Measured[]): Figures {
  return {
    samplesPerSecond: spread(warm.map(rate)),
    cpuPerM: spread(warm.map(cpuPerM)),
    trainerCpuPerM: spread(warm.map(({ trainer_cpu_s, samples }) => (trainer_cpu_s / samples) * 1e6)),
    coldMBps: spread(cold.map(({ bytes, seconds }) => bytes / seconds / 1e6)),
  };
}

const rate = ({ samples, seconds }: Measured): number => samples / seconds;
const cpuPerM = ({ samples, cpu_s }: Measured): number => (cpu_s / samples) * 1e6;

async function facts(python: Python): Promise<MachineFacts> {
  const code =
    "import json, sys, numpy, torch; print(json.dumps({'python': sys.version.split()[0], 'numpy': numpy.__version__, 'torch': torch.__version__}))";
  const { stdout } = await run(python.path, pythonCode(code), { env: python.env, timeout: DEADLINE_MS });
  return machineFacts(JSON.parse(stdout) as { python: string; numpy: string; torch: string });
}

async function makeData(options: FormatsOptions, python: Python, say: (line: string) => void): Promise<string[]> {
  const { folder, formats, samples, width, seed } = options;
  await mkdir(folder, { recursive: true });
  say(`making ${samples} samples x ${width} in ${formats.length} formats (once)`);
  const args = ["--out", folder, "--formats", formats.join(","), "--n", `${samples}`, "--seq", `${width}`];
  const done = await run(python.path, [...pythonModule("athanor.bench.formats.data"), ...args, "--seed", `${seed}`], {
    env: python.env,
    timeout: DEADLINE_MS,
  });
  for (const line of done.stderr.split("\n")) if (line !== "") say(line);
  const made = JSON.parse(done.stdout) as string[];
  if (made.length === 0) throw new BenchData("none of the formats asked for could be written", {}, done.stderr.trim());
  return made;
}

/** Seconds of a fresh index. */
async function index(folder: string, format: string, say: (line: string) => void): Promise<number> {
  say(`index of ${format}`);
  const storage = createPosixStorage();
  try {
    const start = performance.now();
    await buildIndex(folder, { storage, rebuild: true });
    return (performance.now() - start) / 1000;
  } finally {
    await storage.close();
  }
}

async function measure(
  options: FormatsOptions,
  python: Python,
  format: string,
  reader: Reader,
  pass: number,
  cold: boolean,
): Promise<Measured> {
  const { folder, samples, width, batch, seconds, seed, shuffleMemory } = options;
  const asked = {
    reader: reader === "peer" ? "peer" : "athanor",
    format,
    folder: join(folder, format),
    batch,
    width,
    samples,
    seconds,
    cold,
    seed: seed + pass,
    // Null: the loader's default.
    shuffle_memory: reader === "held" ? null : shuffleMemory,
  };
  try {
    const { stdout } = await run(
      python.path,
      [...pythonModule("athanor.bench.formats.measure"), JSON.stringify(asked)],
      {
        env: python.env,
        timeout: DEADLINE_MS,
      },
    );
    return JSON.parse(stdout) as Measured;
  } catch (error) {
    const { stderr = "" } = error as { stderr?: string };
    throw new BenchRank(`${format}, ${reader}: the measurement failed`, {}, stderr.trim().slice(-2000), error);
  }
}

async function contentOf(folder: string): Promise<{ files: number; bytes: number }> {
  const content = { files: 0, bytes: 0 };
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
    const path = join(entry.parentPath, entry.name);
    if (!entry.isFile() || path.includes("/.athanor/")) continue;
    content.files++;
    content.bytes += (await stat(path)).size;
  }
  return content;
}
