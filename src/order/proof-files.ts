/**
 * Proof files: reads what the ranks wrote, decides which lines count, and compares them with the order.
 *
 * Which lines count: files (and, where positions go back inside a file, its parts) of equal `start` and `world`
 * with different ranks are one *session*; sessions follow each other in the order of their `time`. A rank that comes again
 * with the same start and world begins its session anew, last in that order. A line of a session at or after the start of a
 * later session is superseded. What is left is compared step by step where
 * all ranks of the session have a line.
 *
 * @example
 * const proof = readProof([{ name: "0-1764581045123.jsonl", text }, …]);
 * const report = compareProof(proof, order, identify);
 * if (report.difference !== undefined) …
 */
import * as z from "zod";
import { ProofInvalid, ProofMismatch } from "./errors.ts";
import type { Order } from "./order.ts";
import { expectedSum, type Identify } from "./proof.ts";

/** A proof file: name for messages, content. Reading the folder is the caller's. */
export interface ProofText {
  name: string;
  text: string;
}

/** One step over all ranks. */
export interface ProofStep {
  position: number;
  rows: number;
  sum: bigint;
  world: number;
  /** Ranks that have no line for it; the step is compared only when there is none. */
  missing: number[];
  /** File of the lowest rank that has a line. */
  file: string;
}

export interface Proof {
  /** In order of position. */
  steps: ProofStep[];
  sessions: number;
  supersededLines: number;
  /** Last lines that were cut off by a kill. */
  tornLines: number;
  /** View fingerprints named by the headers. */
  views: string[];
  /** Fingerprints of the data by those of its views, as far as the headers name them. */
  data: ReadonlyMap<string, string>;
  /** Of the views that split or pack records, as far as the headers tell. */
  pieces: ReadonlyMap<string, ProvenPieces>;
  /** States carried by the headers, as written, the latest last. */
  states: unknown[];
}

export interface ProofReport {
  /** Steps compared, and rows in them. */
  steps: number;
  rows: number;
  /** Of `rows`, those of records that the ledger names; left out if there are none. */
  replaced?: number;
  /** Steps for which some rank has no line (what a kill leaves behind). */
  incomplete: number;
  sessions: number;
  supersededLines: number;
  /** Positions [from, to) that nobody vouches for, between compared steps. `skip`: on purpose, as the rest of an epoch or as declared. */
  gaps: { from: number; to: number; skip: boolean }[];
  /** The first step that is not what the order says. */
  difference?: {
    position: number;
    rows: number;
    found: string;
    expected: string;
    world: number;
    file: string;
    what: string;
  };
}

/** Each step looks for all of them. */
const MOST_RANKS = 1 << 20;
const decimal = z.string().regex(/^(0|[1-9][0-9]{0,19})$/);
const Pieces = z.object({
  tokens: z.string().regex(/^[0-9a-f]{32}$/),
  rule: z.enum(["split", "pack"]),
  maxLength: z.number().int().min(1),
});
export type ProvenPieces = z.infer<typeof Pieces>;
const Header = z.object({
  version: z.number(),
  rank: z.number().int().min(0),
  world: z.number().int().min(1).max(MOST_RANKS),
  start: decimal,
  time: z.number(),
  view: z.string(),
  data: z.record(z.string(), z.string()).optional(),
  pieces: z.record(z.string(), Pieces).optional(),
  state: z.unknown().optional(),
});
const Line = z.object({ position: decimal, rows: z.number().int().min(0), sum: decimal });

interface StepLine {
  position: number;
  rows: number;
  sum: bigint;
}

/** Consecutive lines of one rank with rising positions. */
interface Part {
  file: string;
  rank: number;
  world: number;
  start: number;
  time: number;
  /** Number of the part in its file. */
  number: number;
  lines: StepLine[];
}

interface Session {
  world: number;
  start: number;
  /** Number of its parts in their files. */
  number: number;
  parts: Map<number, Part>;
}

/** Throws ATH_PROOF_INVALID with file and line for anything but a torn last line. */
export function readProof(files: readonly ProofText[]): Proof {
  const parts: Part[] = [];
  const views = new Set<string>();
  const data = new Map<string, string>();
  const pieces = new Map<string, ProvenPieces>();
  const states = new Map<string, { time: number; state: unknown }>();
  let tornLines = 0;
  for (const { name, text } of files) {
    let part: Part | undefined;
    const lines = text.split("\n");
    // Every whole line ends in a newline: what follows the last one was cut off by a kill.
    if (lines.pop() !== "") tornLines++;
    for (const [i, line] of lines.entries()) {
      const value = parseLine(line, name, i + 1);
      if ("version" in value) {
        if (value.version !== 1) {
          throw new ProofInvalid(`proof has an unknown version: found ${value.version}, expected 1`, {
            file: name,
            line: i + 1,
          });
        }
        const { rank, world, time } = value;
        if (rank >= world)
          throw new ProofInvalid(`rank ${rank} is not below world size ${world}`, { file: name, line: i + 1 });
        part = { file: name, rank, world, time, start: place(value.start, name, i + 1), number: 0, lines: [] };
        parts.push(part);
        views.add(value.view);
        for (const [view, fingerprint] of Object.entries(value.data ?? {})) data.set(view, fingerprint);
        for (const [view, made] of Object.entries(value.pieces ?? {})) pieces.set(view, made);
        if (value.state !== undefined) {
          const key = JSON.stringify(orderOf(value.state));
          if ((states.get(key)?.time ?? -1) < time) states.set(key, { time, state: value.state });
        }
        continue;
      }
      if (part === undefined) throw new ProofInvalid("proof has no header line", { file: name, line: 1 });
      const step = { position: place(value.position, name, i + 1), rows: value.rows, sum: BigInt(value.sum) };
      const previous = part.lines.at(-1);
      if (previous !== undefined && step.position < previous.position + previous.rows) {
        // The rank went back (a new epoch after `break`): from here on it is a session of its own.
        part = { ...part, start: step.position, number: part.number + 1, lines: [] };
        parts.push(part);
      }
      part.lines.push(step);
    }
  }
  const { sessions, supersededLines } = group(parts);
  const merged = merge(sessions);
  return {
    steps: merged.steps,
    sessions: sessions.length,
    supersededLines: supersededLines + merged.supersededLines,
    tornLines,
    views: [...views],
    data,
    pieces,
    states: [...states.values()].sort((a, b) => a.time - b.time).map(({ state }) => state),
  };
}

/** A state without its position: what tells orders apart. */
function orderOf(state: unknown): unknown {
  return typeof state === "object" && state !== null ? { ...state, position: undefined } : state;
}

function parseLine(text: string, file: string, line: number): z.infer<typeof Header> | z.infer<typeof Line> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new ProofInvalid(
      "proof line is not JSON",
      { file, line },
      "the file is damaged: restore it or take it away",
      error,
    );
  }
  const isHeader = typeof value === "object" && value !== null && "version" in value;
  const parsed = isHeader ? Header.safeParse(value) : Line.safeParse(value);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0]!;
  throw new ProofInvalid(
    `proof ${isHeader ? "header" : "line"}, ${issue.path.join(".") || "(top)"}: ${issue.message}`,
    { file, line },
  );
}

function place(text: string, file: string, line: number): number {
  const value = Number(text);
  if (Number.isSafeInteger(value)) return value;
  throw new ProofInvalid(`position ${text} is beyond 2^53`, { file, line });
}

function group(parts: readonly Part[]): { sessions: Session[]; supersededLines: number } {
  const sessions: Session[] = [];
  let supersededLines = 0;
  // Array.sort is stable: parts of one file (equal times) stay in their order.
  for (const part of [...parts].sort((a, b) => a.time - b.time)) {
    const { world, start, number, rank } = part;
    // Behind a session of another world it is another launch, though a kill may have left the first one without this rank.
    const since = sessions.findLastIndex((s) => s.world !== world) + 1;
    const at = sessions.findLastIndex((s, i) => i >= since && s.start === start && s.number === number);
    const session = sessions[at] ?? { world, start, number, parts: new Map<number, Part>() };
    const replaced = session.parts.get(rank);
    if (replaced !== undefined) {
      // The rank was started again from the same place before all ranks had saved a later one: a new launch. Ranks that
      // it did not reach a line of keep their old part until theirs comes.
      supersededLines += replaced.lines.length;
      sessions.splice(at, 1);
    }
    if (replaced !== undefined || at < 0) sessions.push(session);
    session.parts.set(rank, part);
  }
  return { sessions, supersededLines };
}

function merge(sessions: readonly Session[]): { steps: ProofStep[]; supersededLines: number } {
  const steps: ProofStep[] = [];
  let supersededLines = 0;
  let limit = Number.POSITIVE_INFINITY; // least start of all later sessions
  for (const { world, start, parts } of sessions.toReversed()) {
    const byPosition = new Map<number, { ranks: Set<number>; step: ProofStep }>();
    for (const part of [...parts.values()].sort((a, b) => a.rank - b.rank)) {
      for (const { position, rows, sum } of part.lines) {
        if (position >= limit) {
          supersededLines++;
          continue;
        }
        let found = byPosition.get(position);
        if (found === undefined) {
          found = { ranks: new Set(), step: { position, rows: 0, sum: 0n, world, missing: [], file: part.file } };
          byPosition.set(position, found);
        }
        found.ranks.add(part.rank);
        found.step.rows += rows;
        found.step.sum = BigInt.asUintN(64, found.step.sum + sum);
      }
    }
    for (const { ranks, step } of byPosition.values()) {
      for (let rank = 0; rank < world; rank++) if (!ranks.has(rank)) step.missing.push(rank);
      steps.push(step);
    }
    limit = Math.min(limit, start);
  }
  return { steps: steps.sort((a, b) => a.position - b.position), supersededLines };
}

/** Positions [from, to). */
export interface PositionRange {
  from: number;
  to: number;
}

/**
 * Recomputes each complete step; stops at the first that differs. `skipped`: positions that were left out on purpose
 * (`athanor state skip`).
 */
export function compareProof(
  proof: Proof,
  order: Order,
  identify: Identify,
  skipped: readonly PositionRange[] = [],
): ProofReport {
  const report: ProofReport = {
    steps: 0,
    rows: 0,
    incomplete: 0,
    sessions: proof.sessions,
    supersededLines: proof.supersededLines,
    gaps: [],
  };
  let end: number | undefined;
  for (const { position, rows, sum, world, missing, file } of proof.steps) {
    if (missing.length > 0) {
      report.incomplete++;
      continue;
    }
    const differs = (what: string, found: string, expected: string) => {
      report.difference = { position, rows, found, expected, world, file, what };
      return report;
    };
    if (end !== undefined && position < end) {
      return differs("positions were served twice", String(position), String(end));
    }
    if (end !== undefined && position > end) {
      const from = end;
      const skip =
        position === order.begin(order.epochOf(position)) ||
        skipped.some((range) => range.from <= from && position <= range.to);
      report.gaps.push({ from, to: position, skip });
    }
    if (position < order.epochs.from) {
      return differs("the step lies before the order's segment", String(position), String(order.epochs.from));
    }
    const globalBatch = order.epochs.batchAt(position);
    if (rows > globalBatch) {
      return differs("a step has more rows than an optimizer batch", String(rows), String(globalBatch));
    }
    const { sum: expected, replaced } = expectedSum(order, position, position + rows, identify, sum);
    if (sum !== expected) return differs("the sum over all ranks differs", String(sum), String(expected));
    report.steps++;
    if (replaced > 0) report.replaced = (report.replaced ?? 0) + replaced;
    report.rows += rows;
    end = position + rows;
  }
  return report;
}

/** Throws ATH_PROOF_MISMATCH for a step that differs or a hole, ATH_PROOF_INVALID if nothing was compared. */
export function checkReport({ difference, gaps, steps }: ProofReport): void {
  if (difference !== undefined) {
    const { file, position, found, expected, what } = difference;
    throw new ProofMismatch(
      `step at position ${position}: ${what}: found ${found}, expected ${expected}`,
      { file },
      "the run was not given these samples: see which change of data, code or settings came before this step",
    );
  }
  const hole = gaps.find(({ skip }) => !skip);
  if (hole !== undefined) {
    throw new ProofMismatch(
      `no proof for positions ${hole.from} to ${hole.to - 1}`,
      {},
      "samples were lost, or files of the proof are missing; for what `athanor state skip` left out give --skipped FROM:TO",
    );
  }
  if (steps === 0) throw new ProofInvalid("the proof has no step of which all ranks have a line");
}
