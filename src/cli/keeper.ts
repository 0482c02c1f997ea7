/**
 * Where the command begins. One that reads data runs in a process of its own, and this one waits for it: a thread in a
 * call that hangs keeps a dead process from its parent, so that ^C would leave a shell without a prompt. Nothing here
 * touches the data, so it always ends: with that process's exit code or signal.
 *
 * Pipes are handed on, not shared: what is left of a dead process holds its own end open, and a reader would wait.
 */
import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { fstatSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { whileDead } from "./dead.ts";

/** All but `agent`, which watches its daemon in the same way, and `demo`, which brings its data along. */
const KEPT = new Set(["index", "inspect", "verify", "cat", "plan", "layout", "doctor", "state", "bench"]);
const SIGNALS: readonly NodeJS.Signals[] = ["SIGINT", "SIGTERM", "SIGHUP"];

const args = process.argv.slice(2);
if (KEPT.has(args.find((word) => !word.startsWith("-")) ?? "")) keep();
else await import("./main.js");

function keep(): void {
  const main = fileURLToPath(new URL("./main.js", import.meta.url));
  const child = spawn(process.execPath, [...process.execArgv, main, ...args], {
    env: { ...process.env, ATHANOR_KEPT: "1" },
    stdio: ["inherit", isPipe(1) ? "pipe" : "inherit", isPipe(2) ? "pipe" : "inherit", "ipc"],
  });
  let quiet = true;
  for (const [from, to] of [
    [child.stdout, process.stdout],
    [child.stderr, process.stderr],
  ] as const) {
    from?.on("data", () => (quiet = false)).pipe(to);
    // Whoever read it is gone: the command is to see that.
    to.on("error", () => from?.destroy());
  }

  let asked: NodeJS.Signals | undefined;
  for (const signal of SIGNALS) {
    process.on(signal, () => {
      asked = signal;
      child.kill(signal);
    });
  }
  // Before it kills itself, which is its only way out of a call that hangs.
  let told: number | undefined;
  child.on("message", (message) => (told = Number(message)));
  const forget = whileDead(child.pid ?? 0, () => {
    if (quiet) end(child, told, asked ?? "SIGKILL");
    quiet = true;
  });
  child.once("exit", forget);
  child.once("close", (code, signal) => end(child, told ?? code, signal));
  child.once("error", (error) => {
    process.stderr.write(`athanor: ${process.execPath} cannot be started: ${error.message}\n`);
    process.exit(3);
  });
}

/** With `code`, else as `signal` ended the child. */
function end(child: ChildProcess, code: number | null | undefined, signal: NodeJS.Signals | null): void {
  child.unref();
  if (typeof code === "number" || signal === null) process.exit(code ?? 3);
  for (const name of SIGNALS) process.removeAllListeners(name);
  process.kill(process.pid, signal);
}

function isPipe(fd: number): boolean {
  try {
    const found = fstatSync(fd);
    return found.isFIFO() || found.isSocket();
  } catch {
    return false;
  }
}
