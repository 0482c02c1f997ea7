/**
 * Probe: how fast this node reads from one OST, and from several at once: what a change of layout could gain, measured on the files that are
 * there. Reads only, at most 256 MiB in some ten seconds.
 *
 * One and several take turns, each with bytes that were not read before; medians are told. Pages of the files are dropped from this client's
 * cache first; the servers' caches may hold them. A Python process reads (`ask.ts` says why): one that hangs is given up.
 *
 * Contract: no number that was not measured. Where one of the two cannot be, the reason is the answer.
 *
 * @example
 * const probe = await probeOsts("/mnt/lustre/d", files, [0, 1, 2, 3]);
 * typeof probe === "string" ? probe : secondsOf(probe, bytes, 2.5);
 */
import { spawn } from "node:child_process";
import { join } from "node:path";
import { pythonCommand } from "../base/python.ts";
import { abandon } from "../base/run-tool.ts";
import { isReleased, ostAt } from "./layout.ts";
import type { PlacedFile } from "./balance.ts";

export interface Probe {
  /** Bytes a second of one reader on one OST. */
  one: number;
  /** The same of so many readers at once, each on an OST of its own. */
  several: { osts: number; rate: number };
  bytes: number;
  seconds: number;
}

interface Piece {
  path: string;
  offset: number;
  length: number;
}

const MIB = 2 ** 20;
const ROUNDS = 3;
/** Readers at once. */
const OSTS = 4;
/** Of each reader in a round: 3 · (1 + 4) · 16 MiB = 240 MiB in all. */
const EACH = 16 * MIB;
/** Goes direct on Lustre 2.17, and leaves the cache to others. */
const PIECE = 8 * MIB;
const SECONDS = 8;
/** For Python to start, and for a read that has begun. */
const GRACE_MS = 20_000;

/** Why it cannot be told, in words. `osts`: those that work. */
export async function probeOsts(
  folder: string,
  files: readonly PlacedFile[],
  osts: readonly number[],
  python = pythonCommand(),
): Promise<Probe | string> {
  const need = 2 * ROUNDS * EACH;
  const pieces = piecesOf(folder, files, osts, need);
  const enough = [...pieces].filter(([, list]) => bytesOf(list) >= need).map(([, list]) => list);
  if (enough.length < 2)
    return `not measured: ${enough.length === 0 ? "no OST holds" : "only one OST holds"} ${need / MIB} MiB of these files, two are needed`;
  const readers = enough.slice(0, OSTS);
  const rounds = Array.from({ length: ROUNDS }, (_, round) => [
    [take(readers[round % readers.length]!, EACH)],
    readers.map((list) => take(list, EACH)),
  ]).flat();
  const told = await read(rounds, python);
  if (told === undefined) return "not measured: no Python here, or a read did not return";
  // Rounds that the time limit cut off have no pair.
  const whole = told.slice(0, 2 * Math.floor(told.length / 2));
  if (whole.length < 2) return `not measured: ${EACH / MIB} MiB took more than ${SECONDS} s`;
  const rates = (first: number): number[] =>
    whole.filter((_, i) => i % 2 === first).map(({ bytes, seconds }) => bytes / seconds);
  return {
    one: median(rates(0)),
    several: { osts: readers.length, rate: median(rates(1)) },
    bytes: whole.reduce((sum, { bytes }) => sum + bytes, 0),
    seconds: whole.reduce((sum, { seconds }) => sum + seconds, 0),
  };
}

/** Seconds in which one node reads so many bytes while `parallel` OSTs work. Beyond those that were measured none count. */
export function secondsOf({ one, several: { osts, rate } }: Probe, bytes: number, parallel: number): number {
  const share = Math.min(1, Math.max(0, (parallel - 1) / (osts - 1)));
  return bytes / (one + share * (rate - one));
}

/** Pieces of files by the OST that holds all of each, as many as are needed. */
function piecesOf(
  folder: string,
  files: readonly PlacedFile[],
  osts: readonly number[],
  need: number,
): Map<number, Piece[]> {
  const pieces = new Map<number, Piece[]>(osts.map((ost) => [ost, []]));
  for (const { path, size, layout } of files) {
    if ([...pieces.values()].every((list) => bytesOf(list) >= need)) break;
    if (isReleased(layout) || layout.foreign !== undefined) continue;
    const stripe = Math.max(
      MIB,
      ...layout.components.map(({ stripeSize, osts: on }) => (on.length > 1 ? stripeSize : 0)),
    );
    const wide = layout.components.some(({ osts: on }) => on.length > 1);
    const step = wide ? Math.min(PIECE, stripe) : PIECE;
    // No more of one file than anybody needs, however long it is.
    for (let offset = 0; offset + step <= size && offset < OSTS * need; offset += step) {
      const [ost, last] = [ostAt(layout, BigInt(offset)), ostAt(layout, BigInt(offset + step - 1))];
      const list = typeof ost === "number" && ost === last ? pieces.get(ost) : undefined;
      if (list !== undefined && bytesOf(list) < need) list.push({ path: join(folder, path), offset, length: step });
    }
  }
  return pieces;
}

/** Takes pieces from the front of a list. */
function take(list: Piece[], bytes: number): Piece[] {
  const taken: Piece[] = [];
  while (bytesOf(taken) < bytes && list.length > 0) taken.push(list.shift()!);
  return taken;
}

const bytesOf = (list: readonly Piece[]): number => list.reduce((sum, { length }) => sum + length, 0);

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)]!;
}

/** Bytes and seconds of each round that was done in time; undefined: no Python, a fault, or a read that hangs. */
function read(
  rounds: readonly (readonly Piece[])[][],
  python: string,
): Promise<{ bytes: number; seconds: number }[] | undefined> {
  return new Promise((resolve) => {
    const child = spawn(python, ["-I", "-S", "-c", SCRIPT, String(SECONDS)], { stdio: ["pipe", "pipe", "ignore"] });
    let text = "";
    const end = (told: { bytes: number; seconds: number }[] | undefined): void => {
      clearTimeout(timer);
      abandon(child);
      resolve(told);
    };
    const timer = setTimeout(() => end(undefined), SECONDS * 1000 + GRACE_MS);
    child.on("error", () => end(undefined));
    child.stdin.on("error", () => undefined);
    child.stdout.on("data", (chunk: Buffer) => (text += chunk.toString("utf8")));
    child.on("close", (status) => {
      if (status !== 0) return end(undefined);
      const lines = text
        .trimEnd()
        .split("\n")
        .filter((line) => line !== "");
      end(lines.map((line) => JSON.parse(line) as { bytes: number; seconds: number }));
    });
    child.stdin.end(JSON.stringify(rounds));
  });
}

/** Python 3.6 or later. `argv[1]`: no round begins after so many seconds. A round: lists of pieces, one a thread. */
const SCRIPT = `
import json, os, sys, threading, time
limit = float(sys.argv[1])
began = time.monotonic()
faults = []
def read(pieces, opened, counts):
    try:
        read_all(pieces, opened, counts)
    except OSError as error:
        faults.append(error)
def read_all(pieces, opened, counts):
    for fd, piece in zip(opened, pieces):
        at, end = piece["offset"], piece["offset"] + piece["length"]
        while at < end:
            got = len(os.pread(fd, end - at, at))
            if got == 0:
                break
            at += got
            counts.append(got)
for readers in json.load(sys.stdin):
    if time.monotonic() - began > limit:
        break
    opened = [[os.open(piece["path"], os.O_RDONLY) for piece in pieces] for pieces in readers]
    for fd in (fd for each in opened for fd in each):
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    counts = [[] for _ in readers]
    threads = [threading.Thread(target=read, args=each, daemon=True) for each in zip(readers, opened, counts)]
    start = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - start
    for fd in (fd for each in opened for fd in each):
        os.close(fd)
    if faults:
        sys.exit(1)
    print(json.dumps({"bytes": sum(map(sum, counts)), "seconds": max(seconds, 1e-9)}), flush=True)
`;
