/**
 * Politeness: caps on what a job asks of a metadata server that it shares: opens, stats (layouts and folders too) and restores from an
 * archive, a second. On by default where the node has a shared file system.
 *
 * Contract: a cap is the job's. A node has its share, the cap divided by the nodes of the job, and a burst on top of it, so that no normal
 * start waits. Reads are not capped: they go to the servers of data, where `io-pool.ts` bounds those in flight.
 *
 * Where the numbers come from: the smallest file system that Amazon sells has 1,500 metadata operations a second; Dell's measured 2,000
 * stats a second from one thread and over 400,000 in all, 15,000 to 29,000 creates (mdtest). So a job takes about as much of a small
 * server as one busy thread does, and a few per cent of a large one. Restores: a coordinator serves a few at a time, and Azure asks for
 * batches of some thousands at most; 10 a second keep any queue of ours short.
 *
 * @example
 * const polite = new Polite(parsePolite("opens=500"));
 * polite.spread(128);         // this node: 3.9 opens a second
 * polite.waitMs("opens");     // 0
 */
import { Bucket } from "../base/bucket.ts";
import { Usage } from "../base/usage.ts";
import { readMounts } from "./mounts.ts";
import type { Mount } from "./mounts.ts";

export type Asked = "opens" | "stats" | "restores";

/** A second, of a whole job; Infinity: no cap. */
export type Caps = Readonly<Record<Asked, number>>;

export const CAPS: Caps = { opens: 1000, stats: 2000, restores: 10 };
export const NO_CAPS: Caps = { opens: Infinity, stats: Infinity, restores: Infinity };

/**
 * What a node may ask at once, after it has asked nothing for a while: two seconds of its share, and never less than this. A start opens
 * two files a lane and three of the index: tens. Restores: as many as are under way at a time.
 */
export const LEAST_BURST: Caps = { opens: 256, stats: 256, restores: 4 };
const BURST_SECONDS = 2;

const KINDS = Object.keys(CAPS) as Asked[];

export interface AskedStats {
  /** This node's share, a second. */
  perSecond: number;
  /** Calls that wait for it now, and those that did. */
  waiting: number;
  waited: number;
  /** Sum over those. */
  waitedSeconds: number;
}

export interface PoliteStats extends Partial<Record<Asked, AskedStats>> {
  /** That share the caps. */
  nodes: number;
}

interface Cap {
  job: number;
  bucket: Bucket;
  waiting: number;
  waited: number;
  waitedMs: number;
}

export class Polite {
  private readonly caps = new Map<Asked, Cap>();
  private nodes = 1;

  /** `now`: milliseconds. */
  constructor(caps: Caps = CAPS, now?: () => number) {
    for (const kind of KINDS) {
      const job = caps[kind];
      if (!Number.isFinite(job)) continue;
      const bucket = new Bucket(job, burstOf(kind, job), now);
      this.caps.set(kind, { job, bucket, waiting: 0, waited: 0, waitedMs: 0 });
    }
  }

  /** A loader of so many nodes has come. The most counts: an evaluation on one node is of the same job. */
  spread(nodes: number): void {
    if (nodes <= this.nodes) return;
    this.nodes = nodes;
    for (const [kind, { job, bucket }] of this.caps) bucket.change(job / nodes, burstOf(kind, job / nodes));
  }

  /** Milliseconds until one more may be asked; 0: now. */
  waitMs(kind: Asked): number {
    return this.caps.get(kind)?.bucket.waitMs() ?? 0;
  }

  /** So many may be asked at once; below 0: owed. */
  there(kind: Asked): number {
    return this.caps.get(kind)?.bucket.there() ?? Infinity;
  }

  /** So many are asked now. */
  take(kind: Asked, count = 1): void {
    this.caps.get(kind)?.bucket.take(count);
  }

  /** Takes `count` for somebody who asks them one by one: that many at once (below 0: owed), then so many a second. */
  pace(kind: Asked, count: number): { atOnce: number; perSecond: number } | undefined {
    const bucket = this.caps.get(kind)?.bucket;
    if (bucket === undefined) return undefined;
    const paced = { atOnce: bucket.there(), perSecond: bucket.perSecond };
    bucket.take(count);
    return paced;
  }

  /** A call waits, from now on until `done` is called with the time it took. */
  waits(kind: Asked): (ms: number) => void {
    const cap = this.caps.get(kind)!;
    cap.waiting++;
    return (ms) => {
      cap.waiting--;
      cap.waited++;
      cap.waitedMs += ms;
    };
  }

  stats(): PoliteStats {
    const stats: PoliteStats = { nodes: this.nodes };
    for (const [kind, { bucket, waiting, waited, waitedMs }] of this.caps)
      stats[kind] = { perSecond: bucket.perSecond, waiting, waited, waitedSeconds: waitedMs / 1000 };
    return stats;
  }

  /** Which calls wait for a cap now, in words. */
  note(): string | undefined {
    const told = [...this.caps].flatMap(([kind, { job, bucket, waiting }]) =>
      waiting === 0 ? [] : `${waiting} ${kind} wait for ${shareText(job, bucket.perSecond, this.nodes)}`,
    );
    return told.length === 0 ? undefined : `${told.join(", ")} (ATHANOR_POLITE=off lifts the caps)`;
  }
}

export function burstOf(kind: Asked, perSecond: number): number {
  return Math.max(LEAST_BURST[kind], BURST_SECONDS * perSecond);
}

function shareText(job: number, share: number, nodes: number): string {
  const rounded = Number(share.toPrecision(2));
  return nodes === 1
    ? `the cap of ${job} a second`
    : `this node's share, ${rounded} a second of ${job} for ${nodes} nodes`;
}

/** `off`, or `opens=500,stats=off`: what is not named keeps its default. `name`: what the text was given as. */
export function parsePolite(text: string, name = "ATHANOR_POLITE"): Caps {
  if (text === "off") return NO_CAPS;
  const caps: Record<Asked, number> = { ...CAPS };
  const given = new Set<string>();
  for (const part of text.split(",")) {
    const [kind, value] = part.trim().split("=") as [string, string | undefined];
    const number = value === "off" ? Infinity : Number(value);
    if (!KINDS.includes(kind as Asked) || value === undefined || !(number > 0) || given.has(kind))
      throw new Usage(
        `${name} must be off, or some of opens=, stats=, restores= with a number a second or off, each once, got ${JSON.stringify(text)}`,
        {},
        `the defaults are ${KINDS.map((each) => `${each}=${CAPS[each]}`).join(",")}`,
      );
    given.add(kind);
    caps[kind as Asked] = number;
  }
  return caps;
}

/** What was asked for; else the defaults where some mount of this node is shared by many. */
export function capsHere(text = process.env["ATHANOR_POLITE"], name?: string): Caps {
  if (text !== undefined && text !== "") return parsePolite(text, name);
  try {
    return readMounts().some(isShared) ? CAPS : NO_CAPS;
  } catch {
    return CAPS; // no /proc: nothing tells
  }
}

const SHARED = new Set(["lustre", "moosefs", "cephfs", "nfs", "gpfs", "beegfs"]);

function isShared({ kind, type }: Mount): boolean {
  // Whoever serves a FUSE mount may do so over a network. lxcfs is the kernel's own figures.
  return SHARED.has(kind) || (kind === "other" && type.startsWith("fuse") && !/fusectl|lxcfs|portal/.test(type));
}
