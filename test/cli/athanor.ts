/** Runs the command line as a user does. */
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";

export const MAIN = fileURLToPath(new URL("../../src/cli/main.js", import.meta.url));

export interface Ran {
  code: number | null;
  stdout: string;
  stderr: string;
  /** stdout, line by line, parsed. */
  lines(): unknown[];
  /** The one line that `--json` prints on stderr. */
  error(): { code: string; message: string; file?: string; record?: number; byteOffset?: number; remedy?: string };
}

export function athanor(...args: string[]): Ran {
  const { status, stdout, stderr } = spawnSync(process.execPath, [MAIN, ...args], {
    encoding: "utf8",
    timeout: 100_000,
    maxBuffer: 1 << 28,
  });
  return {
    code: status,
    stdout,
    stderr,
    lines: () =>
      stdout
        .trimEnd()
        .split("\n")
        .filter((line) => line !== "")
        .map((line) => JSON.parse(line) as unknown),
    error: () => {
      const lines = stderr.trimEnd().split("\n");
      if (lines.length !== 1) throw new Error(`expected one line on stderr, found:\n${stderr}`);
      return (JSON.parse(lines[0]!) as { error: ReturnType<Ran["error"]> }).error;
    },
  };
}
