/**
 * Rank: one Python process (`python -m athanor.bench.worker`) that trains on nothing at the pace of an emulated
 * accelerator; the crew of all ranks of one contender; and the zygote from which crews are forked.
 *
 * Contract: one JSON line there, one back. A rank that fails, ends or is silent past the deadline is ATH_BENCH_RANK
 * with what it wrote to stderr. Closing its input ends a rank, also when this process is killed.
 *
 * A zygote imports torch and a peer's library once (2 to 10 s of CPU) and forks ranks from there in milliseconds, so that
 * each measurement can have fresh processes. A rank of a zygote answers over a Unix socket instead of its stdin.
 *
 * @example
 * const crew = await Crew.start("memmap", 2, python, "torch", runDir);
 * await crew.all(rank => ({ cmd: "open", rank, … }));     // all ranks at once: the start barrier
 * await crew.stop();
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer, type Server, type Socket } from "node:net";
import { createInterface } from "node:readline";
import type { Readable, Writable } from "node:stream";
import { pythonModule } from "../base/python.ts";
import { BenchRank } from "./errors.ts";
import type { Client, Python } from "./python.ts";

export interface Hello {
  pid: number;
  python: string;
  numpy: string;
  torch: string | null;
  /** Versions of a peer's packages. */
  packages: Record<string, string>;
}

type Answer = Record<string, unknown>;

/** Importing torch takes 2 s on a quiet machine and was seen to take 12 s and more on a busy one. */
const HELLO_MS = 300_000;
const STDERR_KEPT = 4000;

/** A process that takes and gives lines. */
interface Link {
  input: Writable;
  output: Readable;
  /** Resolves with why it ended, when the process is gone. */
  ended: Promise<string>;
  /** The end of what it wrote to stderr. */
  stderr(): string;
  kill(): void;
}

function spawned(python: Python, environment: NodeJS.ProcessEnv, wrapper: readonly string[] = []): Link {
  const [command = python.path, ...args] = [...wrapper, python.path, ...pythonModule("athanor.bench.worker")];
  const child = spawn(command, args, {
    env: { ...python.env, ...environment },
    stdio: ["pipe", "pipe", "pipe"],
  });
  let stderr = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    stderr = (stderr + text).slice(-STDERR_KEPT);
  });
  const ended = new Promise<string>((resolve) => {
    child.on("error", (error) => resolve(error.message));
    child.on("close", (code, signal) => resolve(`it ended (${signal ?? `exit code ${String(code)}`})`));
  });
  return {
    input: child.stdin,
    output: child.stdout,
    ended,
    stderr: () => stderr,
    kill: () => void child.kill("SIGKILL"),
  };
}

class Rank {
  private readonly link: Link;
  private readonly name: string;
  private waiting: { resolve(answer: Answer): void; reject(error: unknown): void } | undefined;
  private dead: string | undefined;

  constructor(name: string, link: Link) {
    this.name = name;
    this.link = link;
    link.input.on("error", () => undefined); // EPIPE of a dead rank: `ended` reports it
    void link.ended.then((why) => this.end(why));
    const lines = createInterface({ input: link.output });
    lines.on("error", () => undefined); // as above, for the socket of a forked rank
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
        this.link.input.write(`${JSON.stringify(command)}\n`);
      });
    } finally {
      clearTimeout(timer);
      this.waiting = undefined;
    }
  }

  /** Ends the rank: politely by its input, after 5 s by SIGKILL. */
  async stop(): Promise<void> {
    if (this.dead !== undefined) return;
    this.link.input.end();
    const timer = setTimeout(() => this.link.kill(), 5000);
    await this.link.ended;
    clearTimeout(timer);
  }

  private end(why: string): void {
    this.dead ??= why;
    this.waiting?.reject(this.failure(this.dead));
    this.waiting = undefined;
  }

  private failure(what: string): Error {
    const tail = this.link.stderr().trim();
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

  /**
   * `runDir`: run directory of the agents that these ranks start. `wrapper`: command in front of the interpreter, such as
   * strace; `contender`: one whose library is imported.
   */
  static async start(
    name: string,
    world: number,
    python: Python,
    client: Client,
    runDir: string,
    { wrapper = [], contender }: { wrapper?: readonly string[]; contender?: string } = {},
  ): Promise<Crew> {
    const ranks = Array.from({ length: world }, (_, rank) => {
      const environment = { ...place(rank, world), ATHANOR_RUN_DIR: runDir };
      return new Rank(`${name}, rank ${rank}`, spawned(python, environment, wrapper));
    });
    try {
      const hello = await Promise.all(ranks.map((rank) => rank.ask({ cmd: "hello", client, contender }, HELLO_MS)));
      return new Crew(ranks, hello as unknown as Hello[]);
    } catch (error) {
      await Promise.all(ranks.map((rank) => rank.stop()));
      throw error;
    }
  }

  /** Forked from a zygote; `port` of this machine, free, where the process group of several ranks meets. */
  static async fork(zygote: Zygote, world: number, port: number): Promise<Crew> {
    const ranks: Rank[] = [];
    try {
      for (let rank = 0; rank < world; rank++) {
        const environment = { ...place(rank, world), MASTER_ADDR: "127.0.0.1", MASTER_PORT: String(port) };
        ranks.push(new Rank(`${zygote.name}, rank ${rank}`, await zygote.fork(environment)));
      }
      if (world > 1) await Promise.all(ranks.map((rank) => rank.ask({ cmd: "join" }, HELLO_MS)));
      return new Crew(
        ranks,
        ranks.map(() => zygote.hello),
      );
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

export interface ZygoteOptions {
  /** Of the contender, as worker.py knows it: its library is imported. */
  loader: string;
  /** Distributions whose versions the hello tells. */
  packages: string[];
  python: Python;
  runDir: string;
}

export class Zygote {
  readonly name: string;
  readonly hello: Hello;
  private readonly rank: Rank;
  private readonly link: Link;
  private readonly server: Server;
  private readonly socket: string;

  private constructor(name: string, hello: Hello, rank: Rank, link: Link, server: Server, socket: string) {
    this.name = name;
    this.hello = hello;
    this.rank = rank;
    this.link = link;
    this.server = server;
    this.socket = socket;
  }

  static async start(name: string, options: ZygoteOptions): Promise<Zygote> {
    const { loader, packages, python, runDir } = options;
    const link = spawned(python, { ATHANOR_RUN_DIR: runDir });
    const rank = new Rank(name, link);
    try {
      const asked = { cmd: "hello", client: "torch", contender: loader, packages };
      const hello = (await rank.ask(asked, HELLO_MS)) as unknown as Hello;
      const server = createServer();
      const socket = `${runDir}/${hello.pid}.sock`;
      server.listen(socket);
      await once(server, "listening");
      return new Zygote(name, hello, rank, link, server, socket);
    } catch (error) {
      await rank.stop();
      throw error;
    }
  }

  /** A rank that has all imports; one at a time. */
  async fork(environment: Record<string, string>): Promise<Link> {
    const timer = AbortSignal.timeout(HELLO_MS);
    const connected = once(this.server, "connection", { signal: timer });
    const [{ pid }, [socket]] = (await Promise.all([
      this.rank.ask({ cmd: "fork", socket: this.socket, environment }, HELLO_MS),
      connected,
    ])) as [{ pid: number }, [Socket]];
    socket.on("error", () => undefined); // ECONNRESET of a killed rank: its close reports it
    return {
      input: socket,
      output: socket,
      ended: once(socket, "close").then(() => "it closed its socket"),
      stderr: () => this.link.stderr(),
      kill: () => process.kill(pid, "SIGKILL"),
    };
  }

  async stop(): Promise<void> {
    this.server.close();
    await this.rank.stop();
  }
}

/** What torchrun sets (and GLOBAL_RANK, which LitData reads). */
function place(rank: number, world: number): Record<string, string> {
  return {
    RANK: String(rank),
    GLOBAL_RANK: String(rank),
    LOCAL_RANK: String(rank),
    WORLD_SIZE: String(world),
    LOCAL_WORLD_SIZE: String(world),
  };
}
