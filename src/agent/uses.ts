/**
 * What is read on this node: the data of sessions, as agents tell it, and files that processes of this user have open. For whoever wants to
 * move files. Other nodes cannot be seen from here.
 *
 * Contract: asks only /proc and local sockets, never the data's mount; at most `timeoutMs` for each agent. An agent that does not answer,
 * or is too old to, is told as silent; what it has open, `openBy` sees.
 *
 * @example
 * const { sources, silent } = await sourcesInUse(5000);
 * const by = openBy("/mnt/lustre/d/a.tar"); // "process 4711 (python3)"
 */
import { existsSync, readFileSync, readdirSync, readlinkSync, statSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { readLines, writeLine } from "./lines.ts";

export interface InUse {
  /** As clients named them: folders, files, globs. */
  sources: { source: string; pid: number }[];
  /** Run directories of agents that do not say what they read. */
  silent: string[];
}

const SOCKET = "agent.sock";

export async function sourcesInUse(timeoutMs: number): Promise<InUse> {
  const folders = agentFolders();
  const told = await Promise.all(folders.map((folder) => ask(join(folder, SOCKET), timeoutMs)));
  return {
    sources: told.flatMap((answer) =>
      typeof answer === "object" ? answer.sources.map((source) => ({ source, pid: answer.pid })) : [],
    ),
    silent: folders.filter((_, i) => told[i] === "silent"),
  };
}

/** A process of this user that has the file open, in words; undefined: none, as far as this user may see. */
export function openBy(path: string): string | undefined {
  for (const pid of entries("/proc")) {
    if (!/^\d+$/.test(pid) || Number(pid) === process.pid) continue;
    // A link to an open file tells its name without asking the file's own mount.
    const open = entries(`/proc/${pid}/fd`).some((fd) => attempt(() => readlinkSync(`/proc/${pid}/fd/${fd}`)) === path);
    if (open) return `process ${pid} (${attempt(() => readFileSync(`/proc/${pid}/comm`, "utf8").trim()) ?? "gone"})`;
  }
  return undefined;
}

/** Of all agents that this user may ask: where sockets are bound, and where run directories lie by default (`_rundir.py`). */
function agentFolders(): string[] {
  const uid = process.getuid?.() ?? 0;
  const bound = (attempt(() => readFileSync("/proc/net/unix", "utf8")) ?? "")
    .split("\n")
    .flatMap((line) => /\s(\/.*)\/agent\.sock$/.exec(line)?.[1] ?? []);
  // A pod's sockets are of a network of its own, and their folders may be shared all the same.
  const usual = ["/dev/shm", "/tmp"].flatMap((base) =>
    entries(`${base}/athanor-${uid}`).map((job) => `${base}/athanor-${uid}/${job}`),
  );
  const named = process.env["ATHANOR_RUN_DIR"];
  const all = [...bound, ...usual, ...(named === undefined || named === "" ? [] : [named])];
  return [...new Set(all)].filter((folder) => isOurs(folder, uid));
}

/** Other programs have an `agent.sock`, too; ours has its log beside it. */
function isOurs(folder: string, uid: number): boolean {
  if (!existsSync(join(folder, SOCKET)) || !existsSync(join(folder, "agent.log"))) return false;
  const owner = attempt(() => statSync(folder).uid);
  return owner === uid || (uid === 0 && owner !== undefined);
}

type Answer = { pid: number; sources: string[] } | "gone" | "silent";

function ask(path: string, timeoutMs: number): Promise<Answer> {
  return new Promise((resolve) => {
    const socket = connect(path);
    const timer = setTimeout(() => end("silent"), timeoutMs);
    const end = (answer: Answer): void => {
      clearTimeout(timer);
      socket.destroy();
      resolve(answer);
    };
    socket.on("connect", () => writeLine(socket, { type: "uses" }));
    // Nobody listens any more: a killed agent leaves its socket.
    socket.on("error", ({ code }: NodeJS.ErrnoException) =>
      end(code === "ECONNREFUSED" || code === "ENOENT" ? "gone" : "silent"),
    );
    socket.on("close", () => end("silent"));
    readLines(socket, (line) => {
      const { type, pid, sources } = (attempt(() => JSON.parse(line) as unknown) ?? {}) as Record<string, unknown>;
      const known = type === "uses" && typeof pid === "number" && Array.isArray(sources);
      end(known ? { pid, sources: sources.map(String) } : "silent");
    });
  });
}

function entries(folder: string): string[] {
  return attempt(() => readdirSync(folder)) ?? [];
}

function attempt<Result>(work: () => Result): Result | undefined {
  try {
    return work();
  } catch {
    return undefined; // gone meanwhile, or of another user
  }
}
