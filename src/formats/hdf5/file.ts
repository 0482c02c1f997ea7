/**
 * File: an HDF5 file that the library of this thread has open. A few files stay open; one that has changed on disk, or whose
 * library instance is gone, is opened anew.
 *
 * Contract: one caller at a time (`thread.ts`); a result is good until the next await.
 *
 * @example
 * const { rows } = (await openFile("/d/a.h5")).layout;
 */
import { statSync } from "node:fs";
import { resolve } from "node:path";
import { AthanorError } from "../../base/errors.ts";
import { ShardTruncated, StorageIo } from "../../storage/errors.ts";
import { NotFormat, ShardInvalid, Unsupported } from "../errors.ts";
import { layoutOf, type Hdf5Layout } from "./layout.ts";
import { Hdf5Failure, type Library, liveLibrary } from "./library.ts";

export interface Hdf5File {
  readonly path: string;
  readonly library: Library;
  readonly id: bigint;
  readonly layout: Hdf5Layout;
  /** Size, time and inode when it was opened. */
  readonly version: string;
}

const MAX_OPEN = 4;
const RDONLY = 0;

/** Most recently used last. */
const open = new Map<string, Hdf5File>();

export async function openFile(name: string): Promise<Hdf5File> {
  // The library asks for absolute paths, whatever it is given.
  const path = resolve(name);
  // Nothing holds on to an instance that is gone: it may be large.
  for (const [other, { library: of }] of open) if (!of.usable) open.delete(other);
  const library = await liveLibrary();
  const version = versionOf(path);
  const known = open.get(path);
  open.delete(path);
  if (known !== undefined && known.library === library && known.version === version.key) {
    open.set(path, known);
    return known;
  }
  if (known !== undefined) close(known);
  while (open.size >= MAX_OPEN) {
    const [oldest] = open.values();
    open.delete(oldest!.path);
    close(oldest!);
  }
  const file = openIn(library, path, version);
  open.set(path, file);
  return file;
}

/** Throws where the file has changed since it was opened: what was read meanwhile may be of both. */
export function checkUnchanged({ path, version }: Hdf5File): void {
  if (versionOf(path).key === version) return;
  throw new ShardTruncated(
    "the file changed while it was read",
    { file: path },
    "write shards under another name and rename them, then run `athanor index` again",
  );
}

function close({ library, id }: Hdf5File): void {
  // One that is not used any more closes all it had.
  if (!library.usable) return;
  try {
    library.call((h5) => h5.close_file(id));
  } catch (error) {
    if (!(error instanceof Hdf5Failure)) throw error;
  }
}

function openIn(library: Library, path: string, version: { key: string; size: number }): Hdf5File {
  library.allow(path);
  let id = -1n;
  try {
    id = library.call((h5) => h5.open(path, RDONLY, false, -1, -1));
    if (id < 0n) throw library.failure("it cannot be opened");
    return { path, library, id, layout: layoutOf(library, id, path, version.size), version: version.key };
  } catch (error) {
    const fault = error instanceof Hdf5Failure ? openFault(error, path, version.size) : error;
    library.retire();
    throw fault;
  }
}

function openFault(failure: Hdf5Failure, file: string, size: number): AthanorError {
  const truncated = /truncated file: eof = (\d+), .*stored_eof = (\d+)/.exec(failure.printed);
  if (truncated !== null) {
    return new ShardTruncated(
      `the file ends at byte ${truncated[1]}, its superblock says ${truncated[2]}`,
      { file, byteOffset: size },
      "copy the shard again, then run `athanor index`",
      failure,
    );
  }
  const { message, printed } = failure;
  if (/file signature not found|not an HDF5 file/.test(printed)) {
    return new NotFormat("no HDF5 superblock found", { file }, "write it again", failure);
  }
  if (/already open for (write|SWMR)/i.test(printed)) {
    return new Unsupported(
      "its writer has not closed it",
      { file },
      "close it, or run `h5clear -s` where the writer has died",
      failure,
    );
  }
  const where = failure.lastRead?.path === file ? { file, byteOffset: failure.lastRead.offset } : { file };
  return new ShardInvalid(
    `HDF5 metadata cannot be read: ${message}`,
    where,
    "the file is damaged: write it again",
    failure,
  );
}

export function versionOf(path: string): { key: string; size: number } {
  try {
    const { size, mtimeNs, ino } = statSync(path, { bigint: true });
    return { key: `${size} ${mtimeNs} ${ino}`, size: Number(size) };
  } catch (error) {
    throw new StorageIo(`stat failed: ${(error as Error).message}`, { file: path }, "check the mount", error);
  }
}
