/**
 * Session: one rank's connection. hello → view → segment → ready, then batches through the segment until the control
 * socket closes: the kernel is the lease.
 */
import { randomBytes } from "node:crypto";
import type { Socket } from "node:net";
import { toErrorRecord } from "../base/errors.ts";
import { slotLayout } from "../feed/columns.ts";
import type { SlotLayout } from "../feed/columns.ts";
import type { Group, Member } from "../feed/group.ts";
import type { PlannedOrder } from "../order/job.ts";
import { stateOf } from "../order/state.ts";
import type { Segment as OrderSegment } from "../order/types.ts";
import { BatchArithmetic, ProtocolMessage, ProtocolMismatch } from "./errors.ts";
import { layout } from "./layout.ts";
import { readLines, writeLine } from "./lines.ts";
import { parseMessage, versionsOf } from "./messages.ts";
import type { ClientMessage, Hello } from "./messages.ts";
import type { Progress } from "./attempts.ts";
import { Segment } from "./segment.ts";
import { warningsOf } from "./warnings.ts";

const RING = Buffer.from("b");

/** What a session needs of the agent it lives in. */
export interface House {
  readonly version: string;
  readonly runDir: string;
  /** Milliseconds after which a rank is told which ranks of its node have not come here. */
  readonly aloneMs: number;
  /** `alive`: is the session still there? An index build that nobody waits for any more is given up. */
  groupFor(hello: Hello, slotOf: SlotOf, progress: Progress, alive: () => boolean): Promise<Joined>;
  session(token: string): Session | undefined;
  ready(session: Session): void;
  forget(session: Session): void;
  stats(group: Group | undefined): Record<string, unknown>;
  /** Data that sessions have open, or are opening, as their clients named it: folders, files, globs. */
  uses(): string[];
  /** `why` a session waits, with the oldest storage call that hangs. */
  withHanging(why: string): string;
  /** The oldest storage call under way, in words. */
  oldestCall(): string | undefined;
  log(text: string): void;
  /** Something worth keeping when the agent has left. */
  warn(text: string): void;
}

export type SlotOf = (columns: Group["view"]["layout"]) => SlotLayout;

export interface Joined {
  group: Group;
  plan: PlannedOrder;
  position: number;
  /** Processes that have come for the same, as {@link processOf} names them. */
  seen: ReadonlySet<string>;
  /** To be called once, when the session is over. */
  leave: () => void;
}

export class Session {
  readonly token = randomBytes(16).toString("hex");
  private readonly house: House;
  private readonly socket: Socket;
  private hello: Hello | undefined;
  private joined: Joined | undefined;
  private segment: Segment | undefined;
  private member: Member | undefined;
  private bell: Socket | undefined;
  private alone: NodeJS.Timeout | undefined;
  private ended = false;

  constructor(house: House, socket: Socket) {
    this.house = house;
    this.socket = socket;
    readLines(socket, (line) => this.receive(line));
    socket.on("close", () => this.end());
    socket.on("error", () => this.end());
  }

  get rank(): number {
    return this.hello?.rank ?? 0;
  }

  /** A line; a bell connection turns into raw bytes behind its first one. */
  private receive(line: string): ((bytes: Buffer) => void) | void {
    if (this.ended) return;
    try {
      if (this.hello === undefined) this.checkProtocol(line);
      const message = parseMessage(line);
      if (message.type === "bell") return this.becomeBell(message.session);
      this.handle(message);
    } catch (error) {
      this.fail(error);
    }
  }

  private checkProtocol(line: string): void {
    const { type, protocol, version } = versionsOf(line);
    if (type !== "hello" || protocol === layout.protocol) return;
    throw new ProtocolMismatch(
      `client speaks protocol ${String(protocol)} (version ${String(version)}), this agent protocol ${layout.protocol} (version ${this.house.version})`,
      {},
      "install the same version of the Python package and of the agent, and end agents of the other one",
    );
  }

  private handle(message: Exclude<ClientMessage, { type: "bell" }>): void {
    switch (message.type) {
      case "hello":
        if (this.hello !== undefined) throw new ProtocolMessage("a second hello in one session");
        this.hello = message;
        void this.open(message).catch((error: unknown) => this.fail(error));
        return;
      case "segment":
        return this.attach(message);
      case "seek":
        this.expectMember().seek(Number(message.position));
        return this.send({ type: "seeked", seq: (this.segment as Segment).upcoming });
      case "get":
        return this.get(message.indices);
      case "why":
        return this.send({ type: "why", text: this.why() });
      case "stats":
        return this.send({ type: "stats", stats: this.house.stats(this.joined?.group) });
      case "uses":
        return this.send({ type: "uses", pid: process.pid, sources: this.house.uses() });
      case "close":
        this.end();
        this.socket.end();
    }
  }

  private async open(hello: Hello): Promise<void> {
    checkArithmetic(hello);
    const progress = (stage: string, done: number, total: number): void =>
      this.send({ type: "progress", stage, done, total });
    const joined = await this.house.groupFor(hello, this.slotOf(hello), progress, () => !this.ended);
    if (this.ended) return joined.leave();
    this.joined = joined;
    const { group, plan, position } = joined;
    const { layout: columns } = group.view;
    const { slot } = group.options;
    const { epochs } = group.view.order;
    const present = segmentAt(plan, position);
    this.send({
      type: "view",
      protocol: layout.protocol,
      version: this.house.version,
      pid: process.pid,
      samples: String(present.sources.reduce((sum, number) => sum + plan.entries[number]!.samples, 0)),
      sources: sourcesText(plan, group, present),
      columns: columns.columns.map(({ name, feature, storage, width, scalar, dtype, bytes }, i) => ({
        name,
        feature,
        storage,
        width,
        scalar,
        dtype,
        offset: slot.offsets[i],
        bytes,
      })),
      slot_bytes: slot.bytes,
      epochs: {
        last: epochs.last,
        spans: epochs.spans.map(({ from, epoch, into, length }) => [from, epoch, into, length]),
        batches: epochs.batches.map(({ from, size }) => [from, size]),
      },
      position: String(position),
      state: stateOf(plan, position),
      warnings: [...warningsOf(group.view, hello.view.columns === null), ...renamed(plan, hello)],
    });
  }

  private slotOf(hello: Hello): SlotOf {
    return (columns) => slotLayout(columns.columns, hello.batch_size, layout.slot.identities, layout.identityBytes);
  }

  private attach(message: Extract<ClientMessage, { type: "segment" }>): void {
    const { joined, hello } = this;
    if (joined === undefined || hello === undefined || this.segment !== undefined) {
      throw new ProtocolMessage("a segment was offered out of turn");
    }
    const { group, position } = joined;
    this.segment = new Segment(message, group.options.slot.bytes, this.house.runDir, () => this.bell?.write(RING));
    this.member = group.join({
      rank: hello.rank,
      localRanks: hello.here,
      stride: hello.stride,
      offset: hello.offset,
      position,
      random: hello.mode === "random",
      slots: message.slots,
      target: this.segment,
      failed: (error) => this.fail(error),
    });
    this.house.ready(this);
    this.send({ type: "ready", session: this.token });
    this.alone = setTimeout(() => this.tellWhoIsMissing(hello), this.house.aloneMs);
  }

  /** Ranks with a /tmp or /dev/shm of their own each start an agent, and each of those reads everything it needs anew. */
  private tellWhoIsMissing({ rank, here }: Hello): void {
    const ranks = [...(this.joined as Joined).seen].map(rankOf);
    const missing = [...here];
    for (const other of ranks) if (missing.includes(other)) missing.splice(missing.indexOf(other), 1);
    if (missing.length === 0 || rank !== Math.min(...ranks)) return;
    const text =
      `${missing.length} of the ${here.length} ranks of this node have not come to this agent: ` +
      `${missing.slice(0, 8).join(", ")}${missing.length > 8 ? ", …" : ""}. If they run, they do not see its run directory ` +
      `${this.house.runDir} (a private /tmp or /dev/shm, or another job name) and read the data once more each: ` +
      "share that folder, or set ATHANOR_RUN_DIR to one that all of them see";
    this.house.log(`rank ${rank}: ${text}`);
    this.tell(text);
  }

  /** A warning for whoever trains. */
  tell(text: string): void {
    this.send({ type: "warning", text });
  }

  /** The second connection of a session: hands the socket over and forgets this one. */
  private becomeBell(token: string): (bytes: Buffer) => void {
    const session = this.house.session(token);
    if (session === undefined) throw new ProtocolMessage("bell for a session that is not here");
    this.ended = true;
    this.house.forget(this);
    session.bell = this.socket;
    return () => session.rang();
  }

  private rang(): void {
    this.segment?.rangBell();
    this.joined?.group.wake();
  }

  private get(indices: number[]): void {
    const { hello, joined } = this;
    const member = this.expectMember();
    if (hello?.mode !== "random") throw new ProtocolMessage('get needs mode "random"');
    const samples = joined?.group.view.sources[0]?.order.samples ?? 0;
    const wrong = indices.find((index) => index >= samples);
    if (wrong !== undefined || indices.length > hello.batch_size) {
      throw new ProtocolMessage(
        wrong === undefined
          ? `get asks for ${indices.length} samples, at most ${hello.batch_size} fit a batch`
          : `get asks for sample ${wrong}, the data has ${samples}`,
      );
    }
    member.ask(Float64Array.from(indices));
  }

  private why(): string {
    if (this.member === undefined || this.joined === undefined) {
      return `opening the data set; ${this.house.oldestCall() ?? "nothing is being read"}`;
    }
    return this.house.withHanging(this.joined.group.why(this.member.batcher));
  }

  private expectMember(): Member {
    if (this.member === undefined) throw new ProtocolMessage("no segment yet");
    return this.member;
  }

  private send(message: object): void {
    if (!this.ended) writeLine(this.socket, message);
  }

  private fail(error: unknown): void {
    if (this.ended) return;
    const record = toErrorRecord(error);
    const text = `session of rank ${this.hello?.rank ?? "?"}: ${record.code} ${record.message}`;
    // The client is told; only what is our own fault is worth a log that outlives the agent.
    if (record.exit === 4) this.house.warn(`${text}\n${record.cause ?? ""}`);
    else this.house.log(text);
    writeLine(this.socket, { type: "error", error: record });
    this.bell?.write(RING);
    this.end();
    this.socket.end();
  }

  /** Hangs up without a word, as if the agent had died: the client goes on with another one. */
  drop(): void {
    this.end();
    this.socket.destroy();
  }

  private end(): void {
    if (this.ended) return;
    this.ended = true;
    clearTimeout(this.alone);
    this.member?.leave();
    this.segment?.close();
    this.bell?.destroy();
    this.joined?.leave();
    this.house.forget(this);
  }
}

/** Names a process of the job: peers share a rank, `DataLoader` workers share both numbers. */
export function processOf({ rank, local_rank }: Hello): string {
  return `${rank}/${local_rank}`;
}

function rankOf(process: string): number {
  return Number.parseInt(process, 10);
}

/** A source goes by its name: under another one the same data starts over, which is seldom meant. */
function renamed({ entries }: PlannedOrder, { mix }: Hello): string[] {
  const names = new Set(mix?.sources.map(({ name }) => name));
  return entries.flatMap(({ name, view }) => {
    const before = entries.find((entry) => entry.view === view && entry.name !== name && !names.has(entry.name));
    if (before === undefined || !names.has(name)) return [];
    return [
      `source ${name} holds the data that the state knows as ${before.name}, and starts over: keep the name to go on`,
    ];
  });
}

/** The segment in force. */
function segmentAt({ segments }: PlannedOrder, position: number): OrderSegment {
  return segments.findLast(({ from }) => from <= position) ?? segments[0]!;
}

function sourcesText({ entries }: PlannedOrder, group: Group, present: OrderSegment): object[] {
  return entries.map(({ name, samples, shuffle, lanes, window, extentBlocks }, number) => ({
    name,
    samples: String(samples),
    weight: present.weights[present.sources.indexOf(number)] ?? 0,
    shuffle,
    held: group.view.sources[number]?.order.resolved.held ?? false,
    lanes,
    window,
    extent: extentBlocks,
    // For the proof: which data it is of, whatever view of it.
    data: group.view.sources[number]?.source.index.fingerprint ?? null,
    pieces: group.view.sources[number]?.source.index.pieces,
  }));
}

function checkArithmetic(hello: Hello): void {
  const { world } = hello;
  if (hello.rank >= world || hello.here.some((rank) => rank >= world) || !hello.here.includes(hello.rank)) {
    throw new BatchArithmetic(
      `rank ${hello.rank} of ${world} with ranks ${hello.here.join(", ")} on this node cannot be`,
    );
  }
  if (hello.offset >= hello.stride)
    throw new BatchArithmetic(`offset ${hello.offset} must be below stride ${hello.stride}`);
}
