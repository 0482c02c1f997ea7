/**
 * `athanor bench agent-opens`: how many files the start of an agent opens, by strace. Home directories are on Lustre
 * too, where each open is a round trip to the metadata server, times the nodes of a job.
 *
 * Contract: counts successful openat/open calls of the agent and its threads until it accepts connections; with a data
 * set, until a client has its first batch (threads and kernels are loaded then). Files below /proc, /sys and /dev and
 * folders are left out: they never reach a file system of the site. Files of the data set and its index are the reader's.
 */
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { connect } from "node:net";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { messageOf } from "../base/errors.ts";
import { pythonCode } from "../base/python.ts";
import { BenchEnvironment, BenchRank } from "./errors.ts";
import { findPython } from "./python.ts";

const run = promisify(execFile);

export interface AgentOpens {
  /** Distinct files opened, kernel file systems left out. */
  files: string[];
  /** Successful opens of all kinds. */
  opens: number;
  /** Opens that failed (search paths). */
  failed: number;
  /** Milliseconds until the agent accepted, strace's slowing included. */
  readyMs: number;
  /** Whether a client took a batch. */
  session: boolean;
}

const READY_MS = 60_000;

/** `data`: absolute path of an indexed set; `indexDir`: where its index lies when it is not beside the data. */
export async function agentOpens(data?: { source: string; indexDir?: string; python?: string }): Promise<AgentOpens> {
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
    if (data !== undefined) await takeBatch(data, folder);
    child.kill("SIGTERM"); // strace ends its tracees with itself
    await closed;
    const counted = countOpens(await readFile(trace, "latin1"));
    const own = (file: string) =>
      [data?.source, data?.indexDir].every((root) => root === undefined || !file.startsWith(root));
    return { ...counted, files: counted.files.filter(own), readyMs, session: data !== undefined };
  } finally {
    child.kill("SIGKILL");
    await rm(folder, { recursive: true, force: true });
  }
}

/** Counts the lines of `strace -f -e trace=openat,open`. */
export function countOpens(trace: string): Omit<AgentOpens, "readyMs" | "session"> {
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

async function takeBatch(data: { source: string; indexDir?: string; python?: string }, runDir: string): Promise<void> {
  const python = await findPython("numpy", data.python);
  const code = `import sys; from athanor.numpy import Loader
with Loader(sys.argv[1], batch_size=1, index_dir=sys.argv[2] or None) as loader: next(iter(loader))`;
  const env = { ...python.env, ATHANOR_RUN_DIR: runDir, ATHANOR_JOB_ID: "opens", ATHANOR_AGENT: "external" };
  try {
    await run(python.path, [...pythonCode(code), data.source, data.indexDir ?? ""], { env, timeout: READY_MS });
  } catch (error) {
    throw new BenchRank("a client of the agent under strace got no batch", {}, undefined, new Error(messageOf(error)));
  }
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
