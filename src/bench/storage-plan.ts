/**
 * What `bench storage` measures and on how many bytes. Pure.
 *
 * Of `--size` half goes to the shards, a quarter to the checkpoint, an eighth to the one shard that all read, and up to an eighth to small
 * files. At each number of processes the same bytes are moved, so that their times tell of the processes and not of the sizes.
 */
import type { Span } from "./storage-jobs.ts";

export type Pattern = "shards" | "small-files" | "checkpoints" | "shared";

export interface Measure {
  pattern: Pattern;
  op: "read" | "write";
  processes: number;
  /** Only the shards on this target. */
  target?: string;
}

/** A file and as much of it as is read or written. */
export interface Piece {
  path: string;
  bytes: number;
}

export interface Pieces {
  shards: Piece[];
  small: Piece[];
  /** All of its files together. */
  checkpoint: Piece;
  shared: Piece;
}

/** As the agent reads, so that Lustre 2.17 goes past its cache with them; and as checkpoints are written best. */
export const READ_CHUNK = 8 << 20;
export const WRITE_CHUNK = 16 << 20;
const SMALL = 64 << 10;
/** As many as say something of percentiles; more would only burden the metadata server. */
const MOST_SMALL = 1024;
const MIB = 1 << 20;
/** Below this a file would be one call. */
export const LEAST = 32 * MIB;

/** 1, 2, 4, … and `most`. */
export function levelsOf(most: number): number[] {
  const levels = [];
  for (let level = 1; level < most; level *= 2) levels.push(level);
  return [...levels, most];
}

/** `shards`: how many files; they are named by number, so that each keeps its target. */
export function piecesOf(folder: string, size: number, shards: number): Pieces {
  const whole = (bytes: number): number => Math.max(MIB, Math.floor(bytes / MIB) * MIB);
  const small = Math.min(MOST_SMALL, Math.floor(size / 8 / SMALL));
  return {
    shards: Array.from({ length: shards }, (_, i) => ({
      path: `${folder}/shard-${i}`,
      bytes: whole(size / 2 / shards),
    })),
    small: Array.from({ length: small }, (_, i) => ({ path: `${folder}/small-${i}`, bytes: SMALL })),
    checkpoint: { path: `${folder}/checkpoint`, bytes: whole(size / 4) },
    shared: { path: `${folder}/shared`, bytes: whole(size / 8) },
  };
}

/** The file of each process of a checkpoint. */
export function checkpointOf({ checkpoint }: Pieces, processes: number): Piece[] {
  const bytes = Math.max(MIB, Math.floor(checkpoint.bytes / processes / MIB) * MIB);
  return Array.from({ length: processes }, (_, i) => ({ path: `${checkpoint.path}-${i}`, bytes }));
}

/**
 * The measures of one pass, in groups that stay together: what is read was written before. `written`: false: shards and the shared one are
 * there, and are read only.
 */
export function groupsOf(levels: readonly number[], targets: readonly string[], written: boolean): Measure[][] {
  const group = (pattern: Pattern, ops: readonly Measure["op"][], processes: number, target?: string): Measure[] =>
    ops.map((op) => ({ pattern, op, processes, ...(target === undefined ? {} : { target }) }));
  const both = ["write", "read"] as const;
  return [
    ...targets.map((target) => group("shards", written ? both : ["read"], 1, target)),
    ...levels.map((level) => group("shards", ["read"], level)),
    ...(written ? levels.map((level) => group("small-files", both, level)) : []),
    ...(written ? levels.map((level) => group("checkpoints", both, level)) : []),
    ...levels.map((level) => group("shared", ["read"], level)),
  ];
}

/** Runs of equal bytes, one a process, cut at multiples of a read: a file may belong to two of them. */
export function runsOf(pieces: readonly Piece[], processes: number): Span[][] {
  const whole = pieces.reduce((sum, { bytes }) => sum + bytes, 0);
  const runs: Span[][] = Array.from({ length: processes }, () => []);
  let before = 0;
  for (const { path, bytes } of pieces) {
    for (let offset = 0; offset < bytes; offset += READ_CHUNK) {
      const length = Math.min(READ_CHUNK, bytes - offset);
      const run = runs[Math.floor(((before + offset) * processes) / whole)]!;
      const last = run.at(-1);
      if (last?.path === path) last.length += length;
      else run.push({ path, offset, length });
    }
    before += bytes;
  }
  return runs;
}

/** Whole files, dealt in runs. */
export function dealt(pieces: readonly Piece[], processes: number): Span[][] {
  return Array.from({ length: processes }, (_, i) =>
    pieces
      .slice(Math.floor((i * pieces.length) / processes), Math.floor(((i + 1) * pieces.length) / processes))
      .map(({ path, bytes }) => ({ path, offset: 0, length: bytes })),
  );
}
