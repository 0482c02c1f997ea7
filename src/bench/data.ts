/**
 * Data of a training benchmark: what the contenders need to know of a data set in the story's schema (`input_ids`,
 * `attention_mask`, int64 lists), and the memory map made from it once.
 *
 * The memory map lies in the cache folder under the data fingerprint and the width, so changed data makes a new one.
 */
import { execFile } from "node:child_process";
import { access, mkdir } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { pythonModule } from "../base/python.ts";
import { buildIndex } from "../dataset/index-build.ts";
import { openIndex } from "../dataset/index-read.ts";
import type { DatasetIndex } from "../dataset/types.ts";
import { Polite, capsHere } from "../storage/polite.ts";
import { createPosixStorage } from "../storage/posix.ts";
import { BenchData, BenchEnvironment } from "./errors.ts";
import { type FileSystem, fileSystemOf } from "./machine.ts";
import type { Python } from "./python.ts";

export interface BenchSet {
  /** Absolute path of the folder or file. */
  source: string;
  indexDir: string | undefined;
  /** Values a row in a batch. */
  width: number;
  shards: [path: string, records: number][];
  samples: number;
  bytes: number;
  fingerprint: string;
  fileSystem: FileSystem;
}

/** Bytes a sample of the memory map: int32 id and int8 mask a value. */
export const MAP_BYTES = 5;
/** Reading 134 MB and parsing them in numpy takes 7 s; a data set that needs hours should not be copied for a benchmark. */
const MAP_LIMIT_BYTES = 64 * 2 ** 30;

/** Folder of the generated samples in all formats, one subfolder a format; made once. */
export function formatsFolder(cacheDir: string, samples: number, width: number, seed: number): string {
  return join(cacheDir, `formats-${samples}x${width}-seed${seed}`);
}

/** `source`: absolute path. Builds the index when there is none. */
export async function describeSet(source: string, width: number, indexDir: string | undefined): Promise<BenchSet> {
  const storage = createPosixStorage({ polite: new Polite(capsHere()) });
  try {
    const place = { storage, ...(indexDir === undefined ? {} : { indexDir }) };
    const index = (await openIndex(source, place)) ?? (await buildIndex(source, place));
    check(index, source);
    return {
      source,
      indexDir,
      width,
      shards: index.shards.map((shard) => [join(index.root, shard.path), shard.records]),
      samples: index.totals.records,
      bytes: index.totals.bytes,
      fingerprint: index.fingerprint,
      fileSystem: fileSystemOf(index.root),
    };
  } finally {
    await storage.close();
  }
}

/** Folder of the finished memory map. */
export async function ensureMemmap(set: BenchSet, cacheDir: string, python: Python): Promise<string> {
  const folder = join(cacheDir, `memmap-${set.fingerprint}-${set.width}`);
  const there = await access(join(folder, "meta.json")).then(
    () => true,
    () => false,
  );
  if (there) return folder;
  const bytes = set.samples * set.width * MAP_BYTES;
  if (bytes > MAP_LIMIT_BYTES) {
    throw new BenchData(
      `the memory map of the map-style contender would take ${Math.ceil(bytes / 2 ** 30)} GiB, more than 64`,
      { file: set.source },
      "run the benchmark on a part of the data, or leave memmap out with --contenders",
    );
  }
  await mkdir(cacheDir, { recursive: true });
  const input = JSON.stringify({ shards: set.shards, width: set.width, out: folder });
  await new Promise<void>((resolve, reject) => {
    const child = execFile(
      python.path,
      pythonModule("athanor.bench.memmap"),
      { env: python.env },
      (error, _, stderr) => {
        if (error === null) resolve();
        else {
          const cause = stderr.trim().split("\n").at(-1) ?? error.message;
          reject(new BenchData(`the memory map could not be made: ${cause}`, { file: folder }, undefined, error));
        }
      },
    );
    child.stdin?.on("error", () => undefined); // EPIPE of a child that failed; its exit code reports it
    child.stdin?.end(input);
  });
  return folder;
}

/** `$ATHANOR_CACHE`, else `$XDG_CACHE_HOME/athanor`, else `~/.cache/athanor`; `bench` in it. */
export function defaultCacheDir(env: NodeJS.ProcessEnv = process.env): string {
  const base = env["ATHANOR_CACHE"] ?? join(env["XDG_CACHE_HOME"] ?? join(homedir(), ".cache"), "athanor");
  return join(base, "bench");
}

function check(index: DatasetIndex, source: string): void {
  if (index.format !== "tfrecord") {
    throw new BenchData(`the contenders read TFRecord, this set is ${index.format}`, { file: source });
  }
  if (index.totals.records === 0) throw new BenchData("the set holds no sample", { file: source });
  const ids = index.schema.fields.find((field) => field.name === "input_ids");
  if (ids?.kind !== "int64") {
    const found = index.schema.fields.map((field) => `${field.name} (${field.kind})`).join(", ");
    throw new BenchData(
      `no int64 feature input_ids, found ${found}`,
      { file: source },
      "the contenders need the story's schema",
    );
  }
  const zlib = index.shards.find((shard) => shard.encoding === "zlib");
  if (zlib !== undefined) {
    throw new BenchEnvironment(
      "the naive contender cannot walk a zlib stream",
      { file: zlib.path },
      "use plain or gzip shards",
    );
  }
}
