/**
 * Writing what a view needs into `.athanor/views/`: each file under a temporary name, fsynced, renamed. No lock files: whoever counts
 * at the same time writes the same bytes to the same names.
 */
import { readdir, readFile, rm, unlink } from "node:fs/promises";
import { join } from "node:path";
import { isTemporary, writeAtomic } from "../base/atomic-write.ts";
import { makeFolders } from "../base/make-folders.ts";
import { countsFile, countsFolder } from "./counts.ts";
import { IndexCorrupt } from "./errors.ts";
import { tableName } from "./index-layout.ts";
import { guardWrites, sweepOld, sweepTemporaries } from "./index-write.ts";
import type { DatasetIndex, ShardRow } from "./types.ts";
import { decodeView, encodeCounts } from "./view-layout.ts";

export class ViewWriter {
  private readonly index: DatasetIndex;
  private readonly tokens: string;
  private readonly source: string;

  /** `source`: the data as the user named it. */
  constructor(index: DatasetIndex, tokens: string, source: string) {
    this.index = index;
    this.tokens = tokens;
    this.source = source;
  }

  /** Makes the folder and tries to write in it, before hours of counting are spent. */
  async prepare(): Promise<void> {
    const folder = countsFolder(this.index, this.tokens);
    await guardWrites(folder, this.source, async () => {
      await makeFolders(folder);
      const probe = join(folder, `.probe.tmp-${process.pid}`);
      await writeAtomic(probe, []);
      await unlink(probe).catch(() => undefined);
    });
  }

  /** Removes the rows of views that were made of these counts, and damaged ones: they are made anew of the next counts. */
  async dropRows(): Promise<void> {
    const folder = join(this.index.folder!, "views");
    await guardWrites(folder, this.source, async () => {
      for (const name of await readdir(folder)) {
        if (!name.endsWith(".bin") || isTemporary(name)) continue;
        const file = join(folder, name);
        // Whoever counts at the same time removes the same files.
        const bytes = await unlessGone(readFile(file));
        if (bytes !== undefined && mayBeOf(bytes, file, this.tokens)) await unlessGone(unlink(file));
      }
    });
  }

  /** Removes damaged counts: their shards are among those to be counted then. */
  async remove(shards: readonly number[]): Promise<void> {
    for (const shard of shards) {
      const file = countsFile(this.index, this.tokens, this.index.shards[shard]!);
      await guardWrites(file, this.source, () => rm(file, { force: true }));
    }
  }

  /** `blocks`: counts of each block of the shard, in order, as they come. */
  async write(row: ShardRow, blocks: AsyncIterable<Uint32Array>): Promise<void> {
    const file = countsFile(this.index, this.tokens, row);
    await guardWrites(file, this.source, () => writeAtomic(file, encodeCounts(row, row.blocks, blocks)));
  }

  /** All shards are counted. */
  async finish(): Promise<void> {
    const folder = countsFolder(this.index, this.tokens);
    const wanted = new Set(this.index.shards.map(tableName));
    const isOurs = (name: string): boolean => isTemporary(name) || name.endsWith(".bin");
    const old = (await readdir(folder)).filter((name) => !wanted.has(name) && isOurs(name));
    await sweepOld(old.map((name) => join(folder, name)));
  }
}

/** Keeps the rows of a view for the next ones who want it. */
export async function writeView(
  index: DatasetIndex,
  name: string,
  parts: readonly Uint8Array[],
  source: string,
): Promise<void> {
  const folder = join(index.folder!, "views");
  await guardWrites(folder, source, async () => {
    await makeFolders(folder);
    await writeAtomic(join(folder, name), parts);
    await sweepTemporaries(folder);
  });
}

function mayBeOf(bytes: Uint8Array, file: string, tokens: string): boolean {
  try {
    const rows = decodeView(bytes, file);
    return rows === undefined || rows.tokens === tokens;
  } catch (error) {
    if (error instanceof IndexCorrupt) return true;
    throw error;
  }
}

async function unlessGone<Result>(work: Promise<Result>): Promise<Result | undefined> {
  try {
    return await work;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}
