/**
 * Child processes of a command that starts others: each in a process group of its own, output by lines into a
 * log, and nothing left running when we end. An agent leaves its group by design (setsid), so agents are found
 * by their job.
 *
 * @example
 * const children = new Children("/tmp/d/log");
 * const code = await children.run("python3", ["train.py"], { onLine: (line) => console.log(line) });
 */
import { type ChildProcess, spawn } from "node:child_process";
import { appendFileSync, readdirSync, readFileSync } from "node:fs";
import { createInterface } from "node:readline";

export interface RunOptions {
  env?: NodeJS.ProcessEnv;
  cwd?: string;
  /** Called for each line of stdout and stderr. `kill` ends the whole group with -9. */
  onLine?: (line: string, kill: () => void) => void;
}

export class Children {
  readonly #log: string;
  readonly #live = new Set<ChildProcess>();

  /** @param log file to which all output is appended. */
  constructor(log: string) {
    this.#log = log;
  }

  /** Runs to the end. Returns the exit code, −1 when a signal ended it. */
  run(command: string, args: string[], options: RunOptions = {}): Promise<number> {
    return new Promise((resolve, reject) => {
      const child = spawn(command, args, {
        env: options.env,
        cwd: options.cwd,
        detached: true,
        stdio: ["ignore", "pipe", "pipe"],
      });
      this.#live.add(child);
      const kill = (): void => killGroup(child);
      for (const stream of [child.stdout, child.stderr]) {
        createInterface({ input: stream }).on("line", (line) => {
          appendFileSync(this.#log, `${line}\n`);
          options.onLine?.(line, kill);
        });
      }
      child.once("error", (error) => {
        this.#live.delete(child);
        reject(error);
      });
      child.once("close", (code) => {
        this.#live.delete(child);
        killGroup(child); // what it left in its group
        resolve(code ?? -1);
      });
    });
  }

  killAll(): void {
    for (const child of this.#live) killGroup(child);
  }

  /** The last lines of the log. */
  tail(lines: number): string {
    return readFileSync(this.#log, "utf8").trimEnd().split("\n").slice(-lines).join("\n");
  }
}

function killGroup(child: ChildProcess): void {
  if (child.pid === undefined) return;
  try {
    process.kill(-child.pid, "SIGKILL");
  } catch {
    // the group is empty already
  }
}

/** Process ids of the agents of a job on this machine: an agent's title is `athanor-agent JOB`. */
export function agentsOf(job: string, proc = "/proc"): number[] {
  return readdirSync(proc)
    .filter((entry) => /^\d+$/.test(entry))
    .filter((entry) => {
      try {
        return readFileSync(`${proc}/${entry}/cmdline`, "utf8").replace(/\0.*/s, "") === `athanor-agent ${job}`;
      } catch {
        return false; // gone since, or not ours
      }
    })
    .map(Number);
}
