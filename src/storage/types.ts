/**
 * Storage: bytes, from POSIX mounts today and from S3 later, behind one interface.
 *
 * Contract: reads go through I/O threads of their own; the calling thread makes no file-system call on
 * a data mount. A short read against `size` is an error (ATH_SHARD_TRUNCATED), never a short buffer.
 * Data files are never mapped into memory.
 */

/** What tells two contents of one path apart. POSIX: size and mtime (inode informational). S3: etag. */
export interface ObjectVersion {
  /** Bytes. */
  size: number;
  /** Modification time in nanoseconds; Lustre keeps whole seconds only. */
  mtimeNs: bigint;
  /** Informational; passes 2^53 on Lustre. */
  inode?: bigint;
  etag?: string;
}

export interface ReadableObject {
  readonly uri: string;
  readonly size: number;
  readonly version: ObjectVersion;
  /**
   * Fills all of `target` from byte `offset`, or as much as the object holds; resolves to the bytes read.
   * A target over shared memory is filled in place by the I/O thread; any other costs one copy.
   */
  readInto(target: Uint8Array, offset: number): Promise<number>;
  close(): Promise<void>;
}

export interface ListedObject {
  /** Path relative to the listed folder, `/` between parts. */
  path: string;
  version: ObjectVersion;
}

/** Files that make a folder, with all below it, one shard: the metadata of Zarr. */
export const FOLDER_MARKS: readonly string[] = ["zarr.json", ".zarray", ".zgroup"];
/** Hidden names that are listed, in such a folder only. */
export const LISTED_HIDDEN: readonly string[] = [".zarray", ".zgroup", ".zattrs", ".zmetadata"];

/** Which names of a folder are asked for, as patterns over paths relative to it. */
export interface NameFilter {
  /** A folder that matches, and that is one shard (`FOLDER_MARKS`), is listed whole. */
  files: RegExp;
  /** Folders that are looked into. */
  folders: RegExp;
}

export interface Storage {
  /** `expected`: the version in the index; another one found is ATH_SHARD_CHANGED. */
  open(uri: string, expected?: ObjectVersion): Promise<ReadableObject>;
  /**
   * Reads exactly [offset, offset + length) of `uri` into `buffer` at `byteOffset`; resolves to `length`. `expected`: the version in the
   * index; checked at the open and behind the read. `over` ends the waiting for a file that comes back from an archive: nothing of it is
   * read then. A read that has begun goes on.
   */
  readShared(
    uri: string,
    expected: ObjectVersion | undefined,
    buffer: SharedArrayBuffer,
    byteOffset: number,
    offset: number,
    length: number,
    over?: AbortSignal,
  ): Promise<number>;
  /** All plain files below a folder, in byte order of their paths; hidden names are left out, save `LISTED_HIDDEN`. */
  list(folder: string): Promise<ListedObject[]>;
  /** The paths of `list` without their versions: a stat asks an OST on Lustre, a name does not. What the filter leaves out is not looked at. */
  names(folder: string, filter?: NameFilter): Promise<string[]>;
  stat(uri: string): Promise<ObjectVersion & { kind: "file" | "folder" }>;
  /** Waits two seconds at most; false: a call hangs, and a process that exits would wait for it for ever. */
  close(): Promise<boolean>;
}
