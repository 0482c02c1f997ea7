/**
 * Rank: one Python process (`python -m athanor.bench.worker`) that trains on nothing at the pace of an emulated
 * accelerator, and the crew of all ranks of one contender.
 *
 * Contract: one JSON line there, one back. A rank that fails, ends or is silent past the deadline is ATH_BENCH_RANK
 * with what it wrote to stderr. Closing its stdin ends a rank, also when this process is killed.
 *
 * @example
 * const crew = await Crew.start("memmap", 2, python, "torch", runDir);
 * await crew.all(rank => ({ cmd: "open", rank, … }));     // all ranks at once: the start barrier
 * await crew.stop();
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { BenchRank } from "./errors.ts";
import type { Client, Python } from "./python.ts";

export interface Hello {
  pid: number;
  python: string;
  numpy: string;
  torch: string | null;
}

type Answer = Record<string, unknown>;

/** Importing torch takes 2 s on a quiet machine and was seen to take 12 s and more on a busy one. */
const HELLO_MS = 300_000;
const STDERR_KEPT = 4000;

class Rank {
  private readonly child: ChildProcess;
  private readonly name: string;
  private stderr = "";
  private waiting: { resolve(answer: Answer): void; reject(error: unknown): void } | undefined;
  private dead: string | undefined;

  constructor(name: string, python: Python, environment: NodeJS.ProcessEnv) {
    this.name = name;
    this.child = spawn(python.path, ["-m", "athanor.bench.worker"], {
      env: { ...python.env, ...environment },
      stdio: ["pipe", "pipe", "pipe"],
    });
    this.child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      this.stderr = (this.stderr + text).slice(-STDERR_KEPT);
    });
    this.child.stdin?.on("error", () => undefined); // EPIPE of a dead rank: `close` below reports it
    this.child.on("error", (error) => this.end(error.message));
    this.child.on("close", (code, signal) => this.end(`it ended (${signal ?? `exit code ${String(code)}`})`));
    const lines = createInterface({ input: this.child.stdout! });
    lines.on("line", (line) => {
      const answer = JSON.parse(line) as Answer;
      const waiting = this.waiting;
      this.waiting = undefined;
      if (typeof answer["error"] === "string") waiting?.reject(this.failure(answer["error"]));
      else waiting?.resolve(answer);
    });
  }

  async ask(command: Answer, deadlineMs: number): Promise<Answer> {
    if (this.dead !== undefined) throw this.failure(this.dead);
    let timer: NodeJS.Timeout | undefined;
    try {
      return await new Promise<Answer>((resolve, reject) => {
        this.waiting = { resolve, reject };
        timer = setTimeout(
          () => reject(this.failure(`no answer to ${String(command["cmd"])} within ${deadlineMs / 1000} s`)),
          deadlineMs,
        );
        this.child.stdin?.write(`${JSON.stringify(command)}\n`);
      });
    } finally {
      clearTimeout(timer);
      this.waiting = undefined;
    }
  }

  /** Ends the rank: politely by its stdin, after 5 s by SIGKILL. */
  async stop(): Promise<void> {
    if (this.dead !== undefined) return;
    const closed = once(this.child, "close");
    this.child.stdin?.end();
    const timer = setTimeout(() => this.child.kill("SIGKILL"), 5000);
    await closed;
    clearTimeout(timer);
  }

  private end(why: string): void {
    this.dead ??= why;
    this.waiting?.reject(this.failure(this.dead));
    this.waiting = undefined;
  }

  private failure(what: string): Error {
    const tail = this.stderr.trim();
    return new BenchRank(
      `${this.name}: ${what}`,
      {},
      tail === "" ? "it wrote nothing to stderr" : "its stderr is the cause of this error",
      tail === "" ? undefined : new Error(tail),
    );
  }
}

export class Crew {
  readonly hello: Hello[];
  private readonly ranks: Rank[];

  private constructor(ranks: Rank[], hello: Hello[]) {
    this.ranks = ranks;
    this.hello = hello;
  }

  /** `runDir`: run directory of the agents that these ranks start. */
  static async start(contender: string, world: number, python: Python, client: Client, runDir: string): Promise<Crew> {
    const ranks = Array.from({ length: world }, (_, rank) => {
      const place = {
        RANK: String(rank),
        LOCAL_RANK: String(rank),
        WORLD_SIZE: String(world),
        LOCAL_WORLD_SIZE: String(world),
      };
      return new Rank(`${contender}, rank ${rank}`, python, { ...place, ATHANOR_RUN_DIR: runDir });
    });
    try {
      const hello = await Promise.all(ranks.map((rank) => rank.ask({ cmd: "hello", client }, HELLO_MS)));
      return new Crew(ranks, hello as unknown as Hello[]);
    } catch (error) {
      await Promise.all(ranks.map((rank) => rank.stop()));
      throw error;
    }
  }

  /** Sends every rank its command at once and waits for all; the first failure wins. */
  async all<T>(command: (rank: number) => Answer, deadlineMs: number): Promise<T[]> {
    return (await Promise.all(this.ranks.map((rank, i) => rank.ask(command(i), deadlineMs)))) as T[];
  }

  async stop(): Promise<void> {
    await Promise.all(this.ranks.map((rank) => rank.stop()));
  }
}
