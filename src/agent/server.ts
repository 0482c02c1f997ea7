/**
 * Server: the agent's sockets, groups and life. It leaves when the last session has closed and the grace time has
 * passed; nothing of it is left then but the log.
 */
import { appendFileSync, chmodSync, rmdirSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import type { Server as NetServer } from "node:net";
import { basename, dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { formatDuration } from "../base/units.ts";
import { Decoders } from "../feed/decoders.ts";
import { PATIENCE } from "../feed/early.ts";
import { Budget } from "../feed/budget.ts";
import { Group } from "../feed/group.ts";
import { parseState } from "../order/state.ts";
import { ClientCounters } from "../lustre/client-counters.ts";
import { withServed } from "../lustre/served.ts";
import { Placement } from "../placement/placement.ts";
import { hungText } from "../storage/io-pool.ts";
import type { HungRequest } from "../storage/io-pool.ts";
import type { Polite } from "../storage/polite.ts";
import { createPosixStorage } from "../storage/posix.ts";
import { clock } from "../storage/troubles.ts";
import type { PosixStorage } from "../storage/posix.ts";
import { SessionDisagrees } from "./errors.ts";
import { slotOffsets } from "./layout.ts";
import type { Hello } from "./messages.ts";
import type { Progress, Waiter } from "./attempts.ts";
import { ViewOpener } from "./open-view.ts";
import type { OpenedView } from "./open-view.ts";
import { processOf, Session } from "./session.ts";
import type { House, Joined, SlotOf } from "./session.ts";

export interface ServerOptions {
  runDir: string;
  job: string;
  version: string;
  /** Milliseconds without a session before it leaves. */
  graceMs: number;
  /** Bytes for rows and reads of all groups. */
  memory: number;
  decodeThreads: number;
  ioThreads: number;
  /** Files kept open. @default 64 */
  handles?: number;
  /** Milliseconds until a rank hears that others of its node have not come. */
  aloneMs: number;
  /** Of what a file system is asked a second. */
  polite: Polite;
  /** Check payload CRCs while training (the index checked them once). */
  checkCrc: boolean;
  /** Called when it is time to leave. */
  leave: () => void;
}

/** A job that never opens a session is not waited for any longer than this. */
const FIRST_SESSION_MS = 30_000;

/** Of a target that hangs a rank is told no oftener. */
const TOLD_AGAIN_MS = 600_000;

/** The kernel tells of a killed process within milliseconds, a busy agent reads it a little later. */
const DEAD_MS = 300;

interface Room {
  /** What all sessions of a loader agree on, as text; `view` alone in `what`. */
  key: string;
  what: string;
  hello: Hello;
  /** Processes that were here: `RANK/LOCAL_RANK`. */
  seen: Set<string>;
  group: Promise<Group>;
  opened: Promise<OpenedView>;
  /** Sessions that are opening or open. */
  users: number;
  /** Those of them that wait for it to open. */
  waiting: Set<Waiter>;
}

export class Server implements House {
  readonly version: string;
  readonly runDir: string;
  readonly aloneMs: number;
  private readonly options: ServerOptions;
  private readonly net: NetServer;
  private readonly storage: PosixStorage;
  private readonly placement: Placement;
  private readonly counters = new ClientCounters();
  private readonly decoders: Decoders;
  private readonly opener: ViewOpener;
  private readonly budget: Budget;
  private readonly sessions = new Set<Session>();
  private readonly byToken = new Map<string, Session>();
  private readonly rooms = new Map<string, Room>();
  /** When a rank was told of a target that hangs. */
  private readonly told = new Map<string, number>();
  private leaving: NodeJS.Timeout | undefined;
  private readonly started = performance.now();
  private noteworthy = false;

  constructor(options: ServerOptions) {
    this.options = options;
    this.version = options.version;
    this.runDir = options.runDir;
    this.aloneMs = options.aloneMs;
    this.budget = new Budget(options.memory);
    this.placement = new Placement({
      tell: (text) => this.tell(text),
      onSystem: (system) => this.counters.begin(system),
      polite: options.polite,
    });
    this.storage = createPosixStorage({
      threads: options.ioThreads,
      polite: options.polite,
      ...(options.handles === undefined ? {} : { handles: options.handles }),
      targetsOf: (path, offset, length) => this.placement.targetsOf(path, offset, length),
      whenThere: (path) => this.placement.whenThere(path),
      stateOf: (target) => this.placement.stateOf(target),
      onHang: (request) => this.hangs(request),
    });
    this.decoders = new Decoders(options.decodeThreads);
    this.opener = new ViewOpener(this.storage, this.placement, options.decodeThreads);
    this.net = createServer((socket) => this.sessions.add(new Session(this, socket)));
    this.leaveAfter(Math.max(FIRST_SESSION_MS, options.graceMs));
  }

  get socketPath(): string {
    return join(this.runDir, "agent.sock");
  }

  listen(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.net.once("error", reject);
      this.net.listen(this.socketPath, () => {
        chmodSync(this.socketPath, 0o600);
        resolve();
      });
    });
  }

  /**
   * Removes the socket, hangs up and ends the I/O threads; false: one of them is in a call that hangs. Nothing stays
   * behind, save the log where it holds more than a start, and a run directory that somebody else made.
   */
  async close(): Promise<boolean> {
    rmSync(this.socketPath, { force: true });
    rmSync(join(this.runDir, "spawn.lock"), { force: true });
    if (!this.noteworthy) rmSync(join(this.runDir, "agent.log"), { force: true });
    const parent = dirname(this.runDir);
    if (basename(parent) === `athanor-${process.getuid?.()}`)
      for (const folder of [this.runDir, parent]) removeEmpty(folder);
    this.net.close();
    // Before storage: its end is no error of theirs.
    for (const session of this.sessions) session.drop();
    this.placement.close();
    return this.storage.close();
  }

  /** Writes to the log something that is worth keeping when the agent has left; the mark is for who sweeps (`_sweep.py`). */
  warn(text: string): void {
    this.noteworthy = true;
    this.log(`WARNING ${text}`);
  }

  /** To the log; to a rank the first of a target, whether it waits for it or not: others will, and an admin wants to know. */
  private hangs(hung: HungRequest): void {
    const { target, sinceMs } = hung;
    const since = clock(new Date(Date.now() - sinceMs));
    const text = `${hungText(hung)} hangs since ${since} (target ${target})`;
    const told = this.told.get(target);
    if (told !== undefined && performance.now() - told < TOLD_AGAIN_MS) return this.warn(text);
    this.told.set(target, performance.now());
    this.tell(text);
  }

  /** What whoever trains here should know; one rank is enough, whatever loader of it waits. */
  private tell(text: string): void {
    this.warn(text);
    const sessions = [...this.byToken.values()];
    const least = Math.min(...sessions.map(({ rank }) => rank));
    for (const session of sessions) if (session.rank === least) session.tell(text);
  }

  /** A log that cannot be written (its folder is gone, the disk is full) is no reason to end. */
  log(text: string): void {
    try {
      this.append(text);
    } catch {
      // there is nowhere to say so
    }
  }

  private append(text: string): void {
    appendFileSync(join(this.runDir, "agent.log"), `${new Date().toISOString()} ${text}\n`, { mode: 0o600 });
  }

  session(token: string): Session | undefined {
    return this.byToken.get(token);
  }

  ready(session: Session): void {
    this.byToken.set(session.token, session);
  }

  forget(session: Session): void {
    this.sessions.delete(session);
    this.byToken.delete(session.token);
    // Not anew for each that only looks whether somebody is here: clients that start on this node do so every few seconds (`_sweep.py`).
    if (this.sessions.size === 0 && this.leaving === undefined) this.leaveAfter(this.options.graceMs);
  }

  /** The group for a hello: an existing one that agrees in everything, or a new one. */
  async groupFor(hello: Hello, slotOf: SlotOf, progress: Progress, alive: () => boolean): Promise<Joined> {
    clearTimeout(this.leaving);
    this.leaving = undefined;
    this.options.polite.spread(nodesOf(hello));
    const key = keyOf(hello);
    if (this.rooms.get(key) === undefined && this.disagreement(hello, key) !== undefined) {
      // Sockets of a launch that was killed may close a moment after those of the next one have come.
      await sleep(DEAD_MS);
      const found = this.disagreement(hello, key);
      if (found !== undefined) throw found;
    }
    const room = this.rooms.get(key) ?? this.openRoom(hello, key, slotOf);
    const waiter = { progress, alive, builds: () => hello.build_index };
    room.users++;
    room.waiting.add(waiter);
    // At once: ranks of one launch come while the first one's view is being opened.
    room.seen.add(processOf(hello));
    try {
      const group = await room.group;
      const { plan, position } = await room.opened;
      // Ranks that come back one by one stand a step or two apart, each at its own position.
      const own = typeof hello.state === "object" && hello.state !== null && !hello.override;
      return {
        group,
        plan,
        seen: room.seen,
        position: own ? Number(parseState(hello.state).position) : position,
        leave: () => this.leaveRoom(room),
      };
    } catch (error) {
      this.leaveRoom(room);
      throw error;
    } finally {
      room.waiting.delete(waiter);
    }
  }

  /** `why`, with the call that hangs for it (its own file's or target's, else the oldest), and what is known of its targets. */
  withHanging(why: string): string {
    const hanging = this.storage.hanging();
    const own = hanging.find(({ path }) => why.includes(path)) ?? hanging.find(({ target }) => why.includes(target));
    const oldest = own ?? hanging[0];
    const { targets, troubles } = this.storage.stats();
    const told = [
      ...targets.flatMap(({ target, slower }) =>
        slower !== undefined && why.includes(target)
          ? `${target} takes ${slower} times as long as others of its file system`
          : [],
      ),
      ...troubles.flatMap(({ target, code, since, state }) =>
        why.includes(target)
          ? `${target} answers ${code} since ${clock(new Date(since))}${state === undefined ? "" : `, ${state}`}`
          : [],
      ),
    ];
    const waits = this.options.polite.note();
    if (waits !== undefined) told.push(waits);
    const known = [why, ...told].join("; ");
    if (oldest === undefined) return known;
    if (!why.includes(oldest.path)) return `${known}; ${callText(oldest)}`;
    return why.includes(oldest.target) ? known : `${known} (target ${oldest.target})`;
  }

  oldestCall(): string | undefined {
    const [oldest] = this.storage.hanging(0);
    const told = [...(oldest === undefined ? [] : [callText(oldest)]), this.options.polite.note() ?? []].flat();
    return told.length === 0 ? undefined : told.join("; ");
  }

  stats(group: Group | undefined): Record<string, unknown> {
    const { rss } = process.memoryUsage();
    const cpu = process.cpuUsage();
    return {
      pid: process.pid,
      uptimeMs: Math.round(performance.now() - this.started),
      sessions: this.byToken.size,
      rss,
      cpuSeconds: (cpu.user + cpu.system) / 1e6,
      reserved: this.budget.reserved,
      stuck: this.budget.stuck,
      memory: this.budget.total,
      storage: withServed(this.storage.stats(), this.counters.told()),
      ...(group === undefined
        ? {}
        : {
            stages: group.view.clocks,
            shardsOpened: shardsOpened(group),
            missingChunks: missingChunks(group),
            waits: group.waits(),
          }),
    };
  }

  uses(): string[] {
    const named = [...this.rooms.values()].flatMap(
      ({ hello: { mix, view } }) => mix?.sources.map(({ path }) => path) ?? [view.source],
    );
    return [...new Set(named)].sort();
  }

  private openRoom(hello: Hello, key: string, slotOf: SlotOf): Room {
    const waiting = new Set<Waiter>();
    const opened = this.opener.open(hello, {
      progress: (stage, done, total) => {
        for (const waiter of waiting) waiter.progress(stage, done, total);
      },
      alive: () => [...waiting].some((waiter) => waiter.alive()),
      builds: () => [...waiting].some((waiter) => waiter.builds()),
    });
    const group = opened.then((view) => {
      const slot = slotOf(view.layout);
      const { batch_size: batch, world } = hello;
      const { strict } = hello.view;
      // Which records are bad must not hang on an option of the agent.
      const checkCrc = this.options.checkCrc || hello.quarantine?.on_corrupt === "replace";
      return new Group(
        view,
        { batch, world, strict, checkCrc, patience: PATIENCE, slot, offsets: slotOffsets },
        this.decoders,
        this.budget,
      );
    });
    const room: Room = { key, what: whatOf(hello), hello, seen: new Set(), group, opened, users: 0, waiting };
    this.rooms.set(key, room);
    return room;
  }

  private leaveRoom(room: Room): void {
    if (--room.users > 0) return;
    this.rooms.delete(room.key);
    void room.group.then(
      (group) => group.close(),
      () => undefined,
    );
  }

  /** A process that asks for the same view in another order than those before it is refused, and named. */
  private disagreement(hello: Hello, key: string): Error | undefined {
    for (const room of this.rooms.values()) {
      if (room.key === key || room.what !== whatOf(hello)) continue;
      // What a launch that was killed had begun to open says nothing of this one.
      if (!isAlive(room)) continue;
      // One that has been there too opens another loader.
      if (room.seen.has(processOf(hello))) continue;
      // Another world is another loader, such as an evaluation on one rank.
      if (room.hello.world !== hello.world) continue;
      if (hello.mode === "random" || room.hello.mode === "random") continue;
      // So is an evaluation over the training data.
      if ((hello.order.last === "pad") !== (room.hello.order.last === "pad")) continue;
      const differs = differences(room.hello, hello);
      if (differs.length === 0) continue;
      return new SessionDisagrees(
        `${nameOf(hello, room.hello)} does not agree with ${nameOf(room.hello, hello)} of its job: ${differs.join("; ")}`,
        { file: hello.view.source },
        "give all ranks the same arguments and the same state",
      );
    }
    return undefined;
  }

  private leaveAfter(ms: number): void {
    clearTimeout(this.leaving);
    if (!Number.isFinite(ms)) return;
    this.leaving = setTimeout(() => {
      this.leaving = undefined;
      if (this.sessions.size === 0) this.options.leave();
    }, ms);
  }
}

function stateText(state: unknown): unknown {
  return typeof state === "object" && state !== null ? { ...state, position: null } : null;
}

/** A rank; a peer of the same rank by its place on the node. */
function nameOf(hello: Hello, other: Hello): string {
  return hello.rank === other.rank ? `rank ${hello.rank} (local rank ${hello.local_rank})` : `rank ${hello.rank}`;
}

/** Is a session of it open, or does a client still wait for one? */
function isAlive({ users, waiting }: Room): boolean {
  return users > waiting.size || [...waiting].some((waiter) => waiter.alive());
}

/** Nodes of the job, as far as a rank knows: peers that share a rank (tensor, pipeline) on other nodes are not told of. */
function nodesOf({ world, here }: Hello): number {
  return Math.ceil(world / new Set(here).size);
}

function missingChunks(group: Group): number {
  return group.view.sources.reduce((sum, source) => sum + (source?.source.index.missing?.chunks ?? 0), 0);
}

function shardsOpened(group: Group): number {
  return group.view.sources.reduce((sum, source) => sum + (source?.source.shardsOpened ?? 0), 0);
}

/** The data: loaders of other data have nothing to agree on. */
function whatOf({ view, mix }: Hello): string {
  return JSON.stringify(mix?.sources.map(({ path }) => path).sort() ?? [view.source]);
}

function keyOf(hello: Hello): string {
  const { view, mix, order, world, batch_size: batch, mode, state, override, stride, quarantine } = hello;
  return JSON.stringify([mode, view, mix, order, world, batch, stride, stateText(state), override, quarantine]);
}

function differences(a: Hello, b: Hello): string[] {
  const flat = (hello: Hello): Record<string, unknown> => ({
    ...hello.order,
    ramp: JSON.stringify(hello.order.ramp),
    sources: hello.mix?.sources.map(({ name, path }) => `${name}=${path}`).join(" "),
    phases: JSON.stringify(hello.mix?.phases),
    columns: hello.view.columns?.join(" ") ?? "all",
    max_length: hello.view.max_length,
    world: hello.world,
    batch_size: hello.batch_size,
    pad_id: hello.view.pad_id,
    strict: hello.view.strict,
    on_corrupt: hello.quarantine?.on_corrupt ?? "raise",
    on_io_error: hello.quarantine?.on_io_error ?? "raise",
    ...(hello.quarantine !== null && {
      ledger_dir: hello.quarantine.ledger_dir,
      corrupt_quota: hello.quarantine.quota,
    }),
  });
  const [x, y] = [flat(a), flat(b)];
  return Object.keys(y)
    .filter((name) => x[name] !== y[name])
    .map((name) => `${name} is ${String(y[name])}, not ${String(x[name])}`);
}

function callText(hung: HungRequest): string {
  return `storage: ${hungText(hung)} for ${formatDuration(hung.sinceMs / 1000)} (target ${hung.target})`;
}

function removeEmpty(folder: string): void {
  try {
    rmdirSync(folder);
  } catch {
    // another job, or a log that is kept
  }
}
