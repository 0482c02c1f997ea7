/**
 * Atomic write: a file appears whole or not at all, also after a crash.
 * Temporary name in the same folder, fsync of the file, rename, fsync of the folder. Where there is no room it is tried on a new file: on
 * Lustre one full OST is enough for ENOSPC, and a new file is laid on another one (seen on 2.17; its `df` had 7.5 GB free).
 *
 * @example
 * await writeAtomic("/d/.athanor/manifest.json", [Buffer.from("{}")]);
 */
import { randomBytes } from "node:crypto";
import { open, rename, unlink } from "node:fs/promises";
import { basename, dirname, join } from "node:path";

/** Marks files that a killed writer left behind. */
const TEMPORARY_MARK = ".tmp-";

export function isTemporary(name: string): boolean {
  return name.startsWith(".") && name.includes(TEMPORARY_MARK);
}

/** How often a file is begun that finds no room. */
export const NEW_FILES = 3;

/** Is it worth a new file? A quota that is used up is so everywhere. */
export function mayFitElsewhere(error: unknown): boolean {
  return (error as { code?: string }).code === "ENOSPC";
}

/**
 * Writes `parts` one behind the other, as they come; only a list of them can be written again. Errors are those of the file system (`code`
 * EROFS, EACCES, ENOSPC …).
 */
export async function writeAtomic(
  path: string,
  parts: Iterable<Uint8Array> | AsyncIterable<Uint8Array>,
): Promise<void> {
  for (let tries = 1; ; tries++) {
    try {
      return await writeOnce(path, parts);
    } catch (error) {
      if (!mayFitElsewhere(error) || !Array.isArray(parts) || tries === NEW_FILES) throw error;
    }
  }
}

async function writeOnce(path: string, parts: Iterable<Uint8Array> | AsyncIterable<Uint8Array>): Promise<void> {
  const folder = dirname(path);
  const temporary = join(folder, `.${basename(path)}${TEMPORARY_MARK}${process.pid}-${randomBytes(4).toString("hex")}`);
  const file = await open(temporary, "wx", 0o644);
  try {
    try {
      for await (const part of parts) await writeAll(file, part);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(temporary, path);
  } catch (error) {
    await unlink(temporary).catch(() => undefined);
    throw error;
  }
  await syncFolder(folder);
}

/** Makes renames in a folder durable. */
async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, "r");
  try {
    // Some network file systems refuse fsync of a folder; the rename itself is done then.
    await handle.sync().catch(() => undefined);
  } finally {
    await handle.close();
  }
}

async function writeAll(file: Awaited<ReturnType<typeof open>>, part: Uint8Array): Promise<void> {
  // Pieces of 1 MiB: write() of 4 MiB from a never-touched buffer gave EFAULT on Lustre 2.17 with hybrid I/O.
  for (let at = 0; at < part.byteLength;) {
    const { bytesWritten } = await file.write(part, at, Math.min(1 << 20, part.byteLength - at));
    at += bytesWritten;
  }
}
