/**
 * Places: where the bytes of files lie, for those who read them. One interface for all file systems that can tell.
 *
 * Contract: no call here waits for the mount, or makes one on the calling thread. What is not known (yet) is undefined, and reading goes
 * on as without. What is known is of the moment it was asked: it says how to read, never what.
 */
import type { Mount } from "./mounts.ts";

/** The files of one data set, on a file system of which something can be known. */
export interface Home {
  /** Bytes that one read should bring at least; undefined: the file system does not tell, or not yet. */
  readonly requestBytes: number | undefined;
  /** These files will be read soon, the first one first. */
  expect(paths: readonly string[]): void;
  /**
   * What holds bytes [offset, offset + length): `NAME-SERVER`, NAME the file system. Several: the bytes lie on all of them, or on any
   * one of them as a copy; nobody tells which one a read waits for.
   */
  targetsOf(path: string, offset: number, length: number): readonly string[] | undefined;
  /** Is any file of this node waited for? */
  readonly restoring: boolean;
  /** Resolves when a released file is back, or cannot be brought back ahead; undefined: nothing to wait for. */
  arrival(path: string): Promise<void> | undefined;
  /** Why reading a file waits, in words. */
  noteOf(path: string): string | undefined;
}

/** What one kind of file system knows of its files. */
export interface Places {
  /** Of the data on one mount of this kind. */
  at(mount: Mount): Pick<Home, "requestBytes" | "expect">;
  targetsOf: Home["targetsOf"];
  /** What is known of a target ("switched off"), without asking it. */
  stateOf?(target: string): string | undefined;
  close(): void;
}
