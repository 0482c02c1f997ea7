/**
 * `athanor bench agent-opens`: how many files the start of an agent opens, by strace. Home directories are on Lustre
 * too, where each open is a round trip to the metadata server, times the nodes of a job.
 *
 * Contract: counts successful openat/open calls of the agent and its threads until it accepts connections, files below
 * /proc, /sys and /dev and folders apart: they never reach a file system of the site.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { connect } from "node:net";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { BenchEnvironment, BenchRank } from "./errors.ts";

export interface AgentOpens {
  /** Distinct files opened, kernel file systems left out. */
  files: string[];
  /** Successful opens of all kinds. */
  opens: number;
  /** Opens that failed (search paths). */
  failed: number;
  /** Milliseconds until the agent accepted, strace's slowing included. */
  readyMs: number;
}

const READY_MS = 60_000;

export async function agentOpens(): Promise<AgentOpens> {
  const folder = await mkdtemp(join(tmpdir(), "athanor-opens-"));
  const trace = join(folder, "strace");
  const agent = fileURLToPath(new URL("../../agent.js", import.meta.url));
  const args = ["-f", "-qq", "-e", "trace=openat,open", "-e", "signal=none", "-o", trace];
  const start = performance.now();
  const child = spawn("strace", [...args, process.execPath, agent, "--run-dir", folder, "--job", "opens"], {
    stdio: ["ignore", "ignore", "pipe"],
  });
  let stderr = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => (stderr += text));
  const closed = new Promise<string>((resolve) => {
    child.on("error", (error) => resolve(error.message));
    child.on("close", (code) => resolve(`exit code ${String(code)}: ${stderr.trim()}`));
  });
  try {
    let ended: string | undefined;
    void closed.then((why) => (ended = why));
    while (!(await accepts(join(folder, "agent.sock")))) {
      if (ended?.includes("ENOENT") === true) {
        throw new BenchEnvironment("strace is not installed", {}, "apt-get install strace");
      }
      if (ended !== undefined) throw new BenchRank(`the agent under strace ended before it accepted: ${ended}`);
      if (performance.now() - start > READY_MS)
        throw new BenchRank(`the agent does not accept after ${READY_MS / 1000} s`);
      await sleep(20);
    }
    const readyMs = performance.now() - start;
    child.kill("SIGTERM"); // strace ends its tracees with itself
    await closed;
    return { ...countOpens(await readFile(trace, "latin1")), readyMs };
  } finally {
    child.kill("SIGKILL");
    await rm(folder, { recursive: true, force: true });
  }
}

/** Counts the lines of `strace -f -e trace=openat,open`. */
export function countOpens(trace: string): Omit<AgentOpens, "readyMs"> {
  const files = new Set<string>();
  let [opens, failed] = [0, 0];
  // A call that another thread interrupted comes in two lines: `openat(…, "path", … <unfinished ...>` and `resumed`.
  const open = new Map<string, string>();
  for (const line of trace.split("\n")) {
    const pid = /^\s*(\d+) /.exec(line)?.[1] ?? "";
    const path = /open(?:at)?\((?:[^"]*)"((?:[^"\\]|\\.)*)"/.exec(line)?.[1] ?? open.get(pid);
    if (path === undefined) continue;
    if (line.includes("<unfinished ...>")) {
      open.set(pid, path);
      continue;
    }
    open.delete(pid);
    const result = / = (-?\d+)/.exec(line)?.[1];
    if (result === undefined) continue;
    if (result.startsWith("-")) failed++;
    else {
      opens++;
      if (!/^\/(proc|sys|dev)\//.test(path) && !line.includes("O_DIRECTORY")) files.add(path);
    }
  }
  return { files: [...files].toSorted(), opens, failed };
}

async function accepts(path: string): Promise<boolean> {
  const socket = connect(path);
  try {
    await once(socket, "connect");
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}
