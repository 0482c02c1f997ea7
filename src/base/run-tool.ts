/**
 * Runs a command-line tool that may never end: a call into a lost mount cannot be killed, SIGKILL included.
 *
 * Contract: resolves within the time limit and some milliseconds, whatever the tool does; nothing waits for it afterwards, also
 * not the end of this process. What it printed until then is kept. Never throws, and calls no shell.
 *
 * @example
 * const { status, stdout } = await runTool("lfs", ["osts", "/mnt/lustre"], { timeoutMs: 10_000 });
 */
import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";

export interface RunToolOptions {
  /** Milliseconds. @default 10000 */
  timeoutMs?: number | undefined;
  /** @default that of this process */
  env?: NodeJS.ProcessEnv | undefined;
}

export interface ToolResult {
  /** Undefined: not found, not allowed to run, ended by a signal, or given up. */
  status: number | undefined;
  stdout: string;
  stderr: string;
  /** There is no such tool on PATH, or it may not be run. */
  missing: boolean;
  timedOut: boolean;
}

/** What one call may take unless somebody says otherwise. Milliseconds. */
export const CALL_MS = 10_000;
/** A tool that prints without end is no help. */
const OUTPUT_LIMIT = 64 << 20;

export function runTool(name: string, args: readonly string[], options: RunToolOptions = {}): Promise<ToolResult> {
  return new Promise((resolve) => {
    const child = spawn(name, args, { stdio: ["ignore", "pipe", "pipe"], env: options.env });
    const out: Buffer[] = [];
    const err: Buffer[] = [];
    let bytes = 0;
    let settled = false;
    const settle = (status: number | undefined, more: { missing?: boolean; timedOut?: boolean } = {}): void => {
      if (settled) return;
      settled = true;
      clearTimeout(timer);
      const text = (parts: Buffer[]): string => Buffer.concat(parts).toString("utf8");
      resolve({ status, stdout: text(out), stderr: text(err), missing: false, timedOut: false, ...more });
    };
    const timer = setTimeout(() => {
      settle(undefined, { timedOut: true });
      abandon(child);
    }, options.timeoutMs ?? CALL_MS);
    const keep = (parts: Buffer[]) => (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes <= OUTPUT_LIMIT) parts.push(chunk);
      else abandon(child);
    };
    child.stdout.on("data", keep(out));
    child.stderr.on("data", keep(err));
    child.on("error", () => settle(undefined, { missing: true }));
    child.on("close", (code) => settle(code ?? undefined));
  });
}

/** Ends a process where that is possible; nothing of this one waits for it any more, wherever it hangs. */
export function abandon(child: ChildProcess): void {
  child.kill("SIGKILL");
  child.unref();
  for (const stream of child.stdio) stream?.destroy();
}
