/**
 * Python for our own purposes, none of which is to run what lies in the current folder: with `-c` and `-m` Python looks there first for
 * every module, and a folder of data that somebody else may write to could hold a `json.py`. (`-I` would hide PYTHONPATH, `-P` is of 3.11.)
 *
 * @example
 * await runTool("python3", pythonCode("import json; print(json.dumps(1))"), { env: pythonEnv() });
 * spawn("python3", pythonModule("athanor.bench.worker"), { env: pythonEnv() });
 */
import { delimiter, isAbsolute, resolve } from "node:path";

const NOT_HERE = 'import sys\nsys.path[:] = [p for p in sys.path if p.startswith("/")]\n';

/** The interpreter: $ATHANOR_PYTHON, where that is set and not empty, else `python3` on PATH. */
export function pythonCommand(): string {
  return process.env["ATHANOR_PYTHON"] || "python3";
}

/** Arguments of an interpreter that runs `code`; what is behind them is the code's `sys.argv[1:]`. */
export function pythonCode(code: string): string[] {
  return ["-c", NOT_HERE + code];
}

/** As `-m module`. */
export function pythonModule(module: string): string[] {
  return pythonCode(`import runpy\nrunpy.run_module(${JSON.stringify(module)}, run_name="__main__", alter_sys=True)`);
}

/** The environment for both. An empty part of PYTHONPATH is the current folder, most often by a slip (`PYTHONPATH=$PYTHONPATH:/x`). */
export function pythonEnv(env: NodeJS.ProcessEnv = process.env): NodeJS.ProcessEnv {
  const { PYTHONPATH, ...others } = env;
  const here = process.cwd();
  const parts = (PYTHONPATH ?? "").split(delimiter).filter((part) => isAbsolute(part) || resolve(part) !== here);
  return parts.length === 0 ? others : { ...others, PYTHONPATH: parts.map((part) => resolve(part)).join(delimiter) };
}
