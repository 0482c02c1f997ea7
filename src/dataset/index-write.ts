/**
 * Writing an index: every file under a temporary name, fsynced, renamed; `shards.bin` last but for the copy for
 * eyes, so that a reader finds the old index or the new one whole. No lock files: builders that run at the same
 * time write the same bytes to the same names.
 */
import { readdir, stat, unlink } from "node:fs/promises";
import { join } from "node:path";
import { isTemporary, writeAtomic } from "../base/atomic-write.ts";
import { errnoName } from "../base/errno.ts";
import { AthanorError } from "../base/errors.ts";
import { makeFolders, removeEmpty } from "../base/make-folders.ts";
import { noRoom } from "../storage/no-room.ts";
import { IndexReadOnly, IndexWrite } from "./errors.ts";
import { encodeShards, encodeTable, tableName } from "./index-layout.ts";
import type { Manifest, ShardTable } from "./index-layout.ts";
import type { ShardRow } from "./types.ts";

/** What nobody can still want: leftovers of killed writers, and files of shards that are gone. */
const SWEEP_AFTER_MS = 24 * 3600 * 1000;

/** Removes those that are older. */
export async function sweepOld(paths: Iterable<string>): Promise<void> {
  for (const path of paths) {
    // Another writer may sweep the same file.
    const age = await stat(path).then(
      (found) => Date.now() - found.mtimeMs,
      () => 0,
    );
    if (age > SWEEP_AFTER_MS) await unlink(path).catch(() => undefined);
  }
}

/** Removes old leftovers of killed writers in a folder. */
export async function sweepTemporaries(folder: string): Promise<void> {
  await sweepOld((await readdir(folder)).filter(isTemporary).map((name) => join(folder, name)));
}

export class IndexWriter {
  readonly folder: string;
  private readonly source: string;
  private made: string[] = [];

  constructor(folder: string, source: string) {
    this.folder = folder;
    this.source = source;
  }

  /** Makes the folder and tries to write in it, before hours of reading are spent. */
  async prepare(): Promise<void> {
    await this.guard(async () => {
      this.made = await makeFolders(join(this.folder, "blocks"));
      const probe = join(this.folder, `.probe.tmp-${process.pid}`); // a later builder sweeps it after a kill
      await writeAtomic(probe, []);
      await unlink(probe).catch(() => undefined);
    });
  }

  /**
   * After a failure: leaves no empty folder behind that was not there before. Block tables stay: another builder may
   * already count on them, and a later one sweeps them.
   */
  async abandon(): Promise<void> {
    await removeEmpty(this.made);
  }

  writeTable(shard: ShardTable): Promise<void> {
    return this.guard(() => writeAtomic(join(this.folder, "blocks", tableName(shard)), encodeTable(shard)));
  }

  async publish(manifest: Manifest, shards: readonly ShardRow[]): Promise<void> {
    await this.guard(async () => {
      await writeAtomic(join(this.folder, "shards.bin"), encodeShards(manifest, shards));
      const text = `${JSON.stringify(manifest, undefined, 1)}\n`;
      await writeAtomic(join(this.folder, "manifest.json"), [Buffer.from(text)]);
    });
    await this.sweep(new Set(shards.map(tableName)));
  }

  private async sweep(wanted: ReadonlySet<string>): Promise<void> {
    const blocks = join(this.folder, "blocks");
    await sweepOld((await readdir(blocks)).filter((name) => !wanted.has(name)).map((name) => join(blocks, name)));
    await sweepTemporaries(this.folder);
  }

  private guard<Result>(work: () => Promise<Result>): Promise<Result> {
    return guardWrites(this.folder, this.source, work);
  }
}

/** Makes ATH_INDEX_READONLY and ATH_INDEX_WRITE of what the file system says. `source`: as the user named the data. */
export async function guardWrites<Result>(
  folder: string,
  source: string,
  work: () => Promise<Result>,
): Promise<Result> {
  try {
    return await work();
  } catch (error) {
    throw clear(error, folder, source);
  }
}

function clear(error: unknown, folder: string, source: string): unknown {
  const code = errnoName(error);
  if (code === "EROFS" || code === "EACCES" || code === "EPERM") {
    return new IndexReadOnly(
      `the index cannot be written here (${code}: the folder is read-only for this user)`,
      { file: folder },
      `run \`athanor index ${source} --index-dir FOLDER\` with a folder that can be written, and give the same folder to the loader`,
      error,
    );
  }
  // Errors of our own have codes, too.
  if (code === undefined || error instanceof AthanorError) return error;
  return new IndexWrite(
    `writing the index failed with ${code}`,
    { file: folder },
    noRoom(error, folder) ?? "fix the folder, then run it again",
    error,
  );
}
