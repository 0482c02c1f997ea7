/** Asks the Python of the training for its version and for those of packages, without an import of them. */
import { pythonCode, pythonCommand, pythonEnv } from "../base/python.ts";
import { runTool } from "../base/run-tool.ts";
import type { ToolResult } from "../base/run-tool.ts";
import { formatDuration } from "../base/units.ts";
import type { PythonFacts, PythonTrouble } from "./facts.ts";

/**
 * Versions by the metadata of packages: an import of torch may take a minute from a slow home. Of the client by its source, since one on
 * PYTHONPATH has no metadata. Runs under Python 2, too, which is then called too old.
 */
const CODE = `import json, re, sys
found, client = {}, None
for name in ("numpy", "torch", "deepspeed"):
    try:
        from importlib import metadata
        found[name] = metadata.version(name)
    except Exception: pass
try:
    from importlib.util import find_spec
    client = find_spec("athanor").origin
    with open(client, encoding="utf-8") as file:
        found["athanor"] = re.search('^__version__ = "(.+?)"', file.read(), re.M).group(1)
except Exception: pass
print(json.dumps({"version": "%d.%d.%d" % tuple(sys.version_info[:3]), "packages": found, "client": client}))`;

export async function askPython(timeoutMs: number): Promise<PythonFacts | PythonTrouble> {
  const command = pythonCommand();
  const ran = await runTool(command, pythonCode(CODE), { timeoutMs, env: pythonEnv() });
  const told = ran.status === 0 ? answerIn(ran.stdout) : undefined;
  if (told !== undefined) return { command, ...told };
  const trouble = ran.timedOut ? `no answer within ${formatDuration(timeoutMs / 1000)}` : troubleOf(ran);
  return { command, trouble, silent: ran.timedOut };
}

/** The last line: what starts with Python (sitecustomize) may print, too. */
function answerIn(stdout: string): Omit<PythonFacts, "command"> | undefined {
  try {
    const told = JSON.parse(lastLine(stdout)) as { version?: unknown } | null;
    return typeof told?.version === "string" ? (told as Omit<PythonFacts, "command">) : undefined;
  } catch {
    return undefined;
  }
}

const SHOWN = 120;
const lastLine = (text: string): string => text.trimEnd().split("\n").at(-1)!;

function troubleOf({ missing, status, stdout, stderr }: ToolResult): string {
  if (missing) return "not found, or it may not be run";
  if (status === undefined) return "ended by a signal, or it printed without end";
  const said = lastLine(stderr) || lastLine(stdout);
  return `exit code ${status}, ${said === "" ? "no output" : `it said: ${said.slice(0, SHOWN)}`}`;
}
