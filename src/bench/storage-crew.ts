/**
 * The processes of `bench storage`, from the side of whoever asks: real ones, that can be left behind.
 *
 * Contract: makes no call to the mount. A process that does not get on for `timeoutMs` is left (it may not be possible to kill it) and named
 * with file, byte, call and target; nothing waits for it, also not the end of this process.
 *
 * @example
 * const crew = new Crew({ timeoutMs: 60_000, targetOf: () => undefined });
 * const [done] = await crew.run([{ do: "space", path: "/mnt/lustre/d" }]);
 * crew.leave();
 */
import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { abandon } from "../base/run-tool.ts";
import { AccessDenied, systemError } from "../storage/errors.ts";
import { noRoom } from "../storage/no-room.ts";
import { BenchRank, BenchRoom, BenchSilent } from "./errors.ts";
import { pathOf } from "./storage-jobs.ts";
import type { At, Done, Job, Line } from "./storage-jobs.ts";

const PROCESS = fileURLToPath(new URL("./storage-process.js", import.meta.url));
/** For Node to start, from a file system that may be slow, too. Milliseconds. */
const START_MS = 60_000;

export interface CrewOptions {
  /** Without any progress. Milliseconds. */
  timeoutMs: number;
  /** What holds a byte of a file, as far as it is known. */
  targetOf: (path: string, byte: number) => string | undefined;
}

export class Crew {
  private readonly options: CrewOptions;
  private readonly members: Member[] = [];
  private left = false;

  constructor(options: CrewOptions) {
    this.options = options;
  }

  /** One job a process, all begun together. Throws the first fault at once, whatever the others do. */
  run(jobs: readonly Job[]): Promise<Done[]> {
    if (this.left) return Promise.reject(new Error("the crew was left"));
    while (this.members.length < jobs.length) this.members.push(new Member(this.options));
    return Promise.all(jobs.map((job, i) => this.members[i]!.ask(job)));
  }

  /** Processes by their ids, for whoever looks for them. */
  get ids(): number[] {
    return this.members.flatMap(({ id }) => id ?? []);
  }

  /** `gently`: they end by themselves, when what they do is done and what they made is removed. */
  leave({ gently = false } = {}): void {
    this.left = true;
    for (const member of this.members.splice(0)) member.leave(gently);
  }
}

class Member {
  private readonly options: CrewOptions;
  private readonly child: ChildProcess;
  private at: At | undefined;
  private heard = Date.now();
  private limit = START_MS;
  private answer: ((line: Line | Error) => void) | undefined;
  private stderr = "";
  private ended: string | undefined;

  constructor(options: CrewOptions) {
    this.options = options;
    // Of a session of its own: ^C on a terminal is for whoever asks, who then removes what was made.
    this.child = spawn(process.execPath, [PROCESS], { stdio: ["pipe", "pipe", "pipe"], detached: true });
    createInterface({ input: this.child.stdout! }).on("line", (text) => this.hear(JSON.parse(text) as Line));
    this.child.stderr!.on("data", (text: Buffer) => (this.stderr = (this.stderr + text.toString()).slice(-2000)));
    this.child.stdin!.on("error", () => undefined); // `close` tells it
    const gone = (how: string): void => {
      this.ended = how;
      this.answer?.(lost(how, this.at, this.stderr));
    };
    this.child.on("error", (error) => gone(error.message));
    this.child.on("close", (code, signal) => gone(signal ?? `exit code ${code}`));
  }

  get id(): number | undefined {
    return this.child.pid;
  }

  ask(job: Job): Promise<Done> {
    return new Promise((resolve, reject) => {
      const settle = (line: Line | Error): void => {
        clearInterval(timer);
        this.answer = undefined;
        if (line instanceof Error) reject(line);
        else if ("done" in line) resolve(line.done);
        else if ("fault" in line) reject(this.errorOf(line.fault));
      };
      this.at = undefined;
      this.heard = Date.now();
      const timer = setInterval(() => this.quiet() && settle(this.silent(job)), 100);
      this.answer = settle;
      if (this.ended !== undefined) return settle(lost(this.ended, undefined, this.stderr));
      this.child.stdin!.write(`${JSON.stringify(job)}\n`);
    });
  }

  leave(gently: boolean): void {
    if (!gently) return abandon(this.child);
    this.child.unref();
    for (const stream of this.child.stdio) stream?.destroy();
  }

  private hear(line: Line): void {
    this.heard = Date.now();
    this.limit = this.options.timeoutMs;
    if ("at" in line) this.at = line.at;
    else this.answer?.(line);
  }

  private quiet(): boolean {
    return Date.now() - this.heard > Math.max(this.limit, this.options.timeoutMs);
  }

  private silent(job: Job): Error {
    const { path, byte, step } = this.at ?? { path: pathOf(job), byte: 0, step: "open" };
    const target = this.options.targetOf(path, byte);
    const seconds = Math.round((Date.now() - this.heard) / 1000);
    const held = target === undefined ? "" : ` (${target})`;
    return new BenchSilent(
      `${step} has not answered for ${seconds} s${held}`,
      { file: path, byteOffset: byte },
      "the process in it was left behind: `athanor doctor` and the node's kernel log tell more; --timeout waits longer",
    );
  }

  private errorOf(fault: Extract<Line, { fault: unknown }>["fault"]): Error {
    const { code, path, message, step } = fault;
    const room = noRoom(fault, path);
    if (room !== undefined)
      return new BenchRoom(`no room: the file system answered ${code}`, { file: path }, room, message);
    const making = step === "make" || step === "write" || (step === "open" && code !== "ENOENT");
    if (code === "EROFS" || (making && (code === "EACCES" || code === "EPERM")))
      return new AccessDenied(
        "writing there is not allowed",
        { file: path },
        "name a folder of yours, or read only: --read",
        message,
      );
    return systemError(
      { ...fault, byteOffset: fault.byteOffset },
      0,
      1,
      this.options.targetOf(path, fault.byteOffset ?? 0),
    );
  }
}

function lost(how: string, at: At | undefined, stderr: string): Error {
  const where = at === undefined ? {} : { file: at.path, byteOffset: at.byte };
  return new BenchRank(
    `a process of the benchmark ended: ${how}`,
    where,
    "was it killed for want of memory?",
    stderr.trim(),
  );
}
