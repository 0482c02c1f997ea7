// A running agent and the sockets of a client that speaks to it line by line.
import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { connect } from "node:net";
import type { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const agentJs = fileURLToPath(new URL("../../agent.js", import.meta.url));

const running = new Set<AgentProcess>();

/** Ends what a failed test left. */
export async function closeAgents(): Promise<void> {
  for (const agent of running) await agent.close();
}

export class AgentProcess {
  readonly runDir = mkdtempSync(join(tmpdir(), "athanor-agent-"));
  readonly process: ChildProcess;

  constructor(...options: string[]) {
    this.process = spawn(process.execPath, [agentJs, "--run-dir", this.runDir, "--job", "test", ...options], {
      stdio: "inherit",
    });
    running.add(this);
  }

  get socketPath(): string {
    return join(this.runDir, "agent.sock");
  }

  async connect(): Promise<Line> {
    return new Line(await this.socket());
  }

  /** A connection that carries no lines back (a bell). The socket's file is there a moment before anybody listens. */
  async socket(): Promise<Socket> {
    for (let tries = 0; ; tries++) {
      const socket = connect(this.socketPath);
      const error = await new Promise<Error | undefined>((resolve) => {
        socket.once("connect", () => resolve(undefined));
        socket.once("error", resolve);
      });
      if (error === undefined) return socket;
      if (tries === 1000) throw error;
      await pause(20);
    }
  }

  log(): string {
    return readFileSync(join(this.runDir, "agent.log"), "utf8");
  }

  /** Resolves when the process is gone. */
  async gone(timeoutMs = 30_000): Promise<void> {
    for (const end = Date.now() + timeoutMs; this.process.exitCode === null && this.process.signalCode === null;) {
      if (Date.now() > end) throw new Error("the agent is still there");
      await pause(20);
    }
  }

  async close(): Promise<void> {
    running.delete(this);
    this.process.kill("SIGKILL");
    await this.gone();
    rmSync(this.runDir, { recursive: true, force: true });
  }
}

export class Line {
  readonly socket: Socket;
  closed = false;
  private readonly arrived: Record<string, unknown>[] = [];

  constructor(socket: Socket) {
    this.socket = socket;
    socket.on("error", () => undefined);
    socket.on("close", () => (this.closed = true));
    createInterface({ input: socket }).on("line", (line) =>
      this.arrived.push(JSON.parse(line) as Record<string, unknown>),
    );
  }

  send(message: object | string): void {
    this.socket.write(`${typeof message === "string" ? message : JSON.stringify(message)}\n`);
  }

  /** Next message of this type; an error message that is not awaited fails. */
  async next(type: string, timeoutMs = 20_000): Promise<Record<string, unknown>> {
    for (const end = Date.now() + timeoutMs; ; await pause(5)) {
      const at = this.arrived.findIndex((message) => message["type"] === type || message["type"] === "error");
      if (at >= 0) {
        const [message] = this.arrived.splice(at, 1) as [Record<string, unknown>];
        if (message["type"] !== type) throw new Error(`expected ${type}, found ${JSON.stringify(message)}`);
        return message;
      }
      if (this.closed) throw new Error(`the agent closed the connection before ${type}`);
      if (Date.now() > end) throw new Error(`no ${type} came`);
    }
  }

  async error(): Promise<{ code: string; message: string }> {
    return (await this.next("error"))["error"] as { code: string; message: string };
  }
}

export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
