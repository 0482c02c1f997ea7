/**
 * The Python that runs the rank processes: `--python`, else `$ATHANOR_PYTHON`, else the first `python3` on PATH. It
 * must import numpy, and torch when torch clients are wanted; checked once, before anything is measured.
 */
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { delimiter } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { messageOf } from "../base/errors.ts";
import { pythonCode, pythonCommand, pythonEnv } from "../base/python.ts";
import { BenchEnvironment } from "./errors.ts";

const run = promisify(execFile);

export type Client = "torch" | "numpy";

export interface Python {
  path: string;
  env: NodeJS.ProcessEnv;
}

/** In a checkout the client of the same checkout is used; elsewhere the installed one (`pip install athanor-data`). */
export async function findPython(client: Client, wanted: string | undefined): Promise<Python> {
  const path = wanted ?? pythonCommand();
  const checkout = fileURLToPath(new URL("../../../python/src", import.meta.url));
  const paths = [existsSync(checkout) ? checkout : undefined, pythonEnv()["PYTHONPATH"]];
  const env = {
    ...process.env,
    PYTHONPATH: paths.filter((part) => part !== undefined && part !== "").join(delimiter),
    // What torchrun and deepspeed set for each of several ranks of a node.
    OMP_NUM_THREADS: process.env["OMP_NUM_THREADS"] ?? "1",
  };
  // find_spec, not import: torch takes 2 … 12 s to import and every rank does it anyway.
  const code = `import importlib.util as u, sys
sys.exit(", ".join(m for m in ("numpy", "athanor", "${client}") if u.find_spec(m) is None) or 0)`;
  try {
    await run(path, pythonCode(code), { env, timeout: 60_000 });
  } catch (error) {
    const missing = (error as { stderr?: string }).stderr?.trim() || messageOf(error);
    throw new BenchEnvironment(
      `${path} cannot run the ${client} client: missing ${missing}`,
      {},
      "give an interpreter that has it with --python or ATHANOR_PYTHON; in a checkout `npm run demo` makes one",
    );
  }
  return { path, env };
}
