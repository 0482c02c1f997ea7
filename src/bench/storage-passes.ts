/**
 * One measurement of `bench storage`: the pages dropped, the jobs given to the processes, what came of it.
 *
 * Contract: `cold` is true only where it was seen that nothing was cached: by mincore behind the drop, or by O_DIRECT; and where the mount is a
 * device of this node, by the bytes that came from there.
 */
import { KEPT, dropPages } from "./storage-cold.ts";
import type { Crew } from "./storage-crew.ts";
import type { Job, Moved, Span } from "./storage-jobs.ts";
import { READ_CHUNK, WRITE_CHUNK, checkpointOf, dealt, runsOf } from "./storage-plan.ts";
import type { Measure, Piece, Pieces } from "./storage-plan.ts";

/** How files are made cold: by dropping their pages, by O_DIRECT past the cache, not at all. */
export type ColdWay = "dropped" | "direct" | "cached";

export interface Sample {
  bytes: number;
  seconds: number;
  /** From before open to behind close, each file, milliseconds. */
  times: number[];
  /** Processor time of the processes over the time of all cores. */
  cpu: number;
  /** Of the processes' time, in fsync. */
  sync: number;
  cold: boolean;
  /** Still cached behind the drop; undefined: nothing was dropped. */
  kept: number | undefined;
  /** Bytes from block devices over bytes read. */
  disk: number;
}

export interface Stage {
  crew: Crew;
  pieces: Pieces;
  way: ColdWay;
  /** The mount is a device of this node, whose reads the kernel counts. */
  device: boolean;
  /** Shards on each target. */
  onTarget: ReadonlyMap<string, readonly Piece[]>;
  timeoutMs: number;
  cores: number;
}

/** What can be done here about files in the cache: tried out on one that was just written or read. */
export async function coldWayOf(crew: Crew, piece: Piece, memory: boolean, timeoutMs: number): Promise<ColdWay> {
  if (memory) return "cached";
  const kept = await dropPages([piece], timeoutMs);
  if (kept !== undefined && kept <= KEPT) return "dropped";
  const span: Span = { path: piece.path, offset: 0, length: Math.min(piece.bytes, READ_CHUNK) };
  try {
    await crew.run([{ do: "read", spans: [span], chunk: READ_CHUNK, direct: true }]);
    return "direct";
  } catch (error) {
    if ((error as { code?: string }).code === "ATH_STORAGE_IO") return "cached"; // EINVAL: no O_DIRECT there
    throw error;
  }
}

export async function sampleOf(stage: Stage, measure: Measure): Promise<Sample> {
  const { crew, way, timeoutMs } = stage;
  const spans = spansOf(stage, measure);
  const reading = measure.op === "read";
  const kept = reading && way === "dropped" ? await dropPages(filesOf(spans), timeoutMs) : undefined;
  // A drop that fails is not another way: it is not cold.
  const done = await crew.run(spans.map((each) => jobOf(measure, each, way === "direct")));
  const moved = done.map((each) => (each as { moved: Moved }).moved);
  const sum = (of: (one: Moved) => number): number => moved.reduce((all, one) => all + of(one), 0);
  const seconds = (Math.max(...moved.map(({ end }) => end)) - Math.min(...moved.map(({ begin }) => begin))) / 1000;
  const bytes = sum((one) => one.bytes);
  const disk = sum((one) => one.disk) / bytes;
  const alone = measure.pattern !== "shared" || measure.processes === 1;
  const seen = way === "direct" || (kept !== undefined && kept <= KEPT);
  return {
    bytes,
    seconds,
    times: moved.flatMap(({ times }) => times),
    cpu: sum(({ cpu }) => cpu) / (seconds * stage.cores),
    sync:
      sum(({ syncMs }) => syncMs) /
      Math.max(
        1e-9,
        sum(({ begin, end }) => end - begin),
      ),
    // Read-ahead of another process counts there: half is enough to see that a device was read.
    cold: reading && seen && (!stage.device || !alone || disk > 0.5),
    kept,
    disk,
  };
}

function spansOf({ pieces, onTarget }: Stage, { pattern, op, processes, target }: Measure): Span[][] {
  const whole = ({ path, bytes }: Piece): Span[] => [{ path, offset: 0, length: bytes }];
  if (pattern === "checkpoints") return checkpointOf(pieces, processes).map(whole);
  if (pattern === "small-files") return dealt(pieces.small, processes);
  if (pattern === "shared") return Array.from({ length: processes }, () => whole(pieces.shared));
  const files = target === undefined ? pieces.shards : (onTarget.get(target) ?? []);
  return op === "write" ? dealt(files, processes) : runsOf(files, processes);
}

function jobOf({ pattern, op }: Measure, spans: Span[], direct: boolean): Job {
  if (op === "read") return { do: "read", spans, chunk: READ_CHUNK, direct };
  const small = pattern === "small-files";
  // A shard keeps its file, and so its target.
  return { do: "write", spans, chunk: WRITE_CHUNK, fresh: pattern !== "shards", sync: small ? "behind" : "within" };
}

function filesOf(runs: readonly Span[][]): Piece[] {
  const ends = new Map<string, number>();
  for (const { path, offset, length } of runs.flat()) ends.set(path, Math.max(ends.get(path) ?? 0, offset + length));
  return [...ends].map(([path, bytes]) => ({ path, bytes }));
}
