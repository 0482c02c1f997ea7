/**
 * Reads files and the space of file systems by a process that may be left behind (`reader.ts`), and makes facts of its answers.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { CALL_MS, runTool } from "../base/run-tool.ts";
import { groupFiles } from "./cgroup.ts";
import type { Facts, Space } from "./facts.ts";
import type { Asked, Line } from "./reader.ts";
import { PATTERNS } from "./watched.ts";

const READER = fileURLToPath(new URL("./reader.js", import.meta.url));

/** `places`: absolute paths of file systems whose space is wanted; `runDir`: absolute. */
export async function readFacts(
  root: string,
  places: readonly string[],
  timeoutMs: number,
  runDir?: string,
): Promise<Pick<Facts, "files" | "limitsFile" | "silentFiles" | "spaces" | "runDir">> {
  const starter = starterLimits(root);
  const asked: Asked = {
    root,
    patterns: [...PATTERNS, ...(starter === undefined ? [] : [starter]), ...groupFiles(procText(root, "cgroup"))],
    spaces: places,
    folder: runDir,
  };
  // Node has to start first: a short limit is for calls to servers.
  const limit = { timeoutMs: Math.max(timeoutMs, CALL_MS) };
  const ran = await runTool(process.execPath, [READER, JSON.stringify(asked)], limit);
  const files = new Map<string, string>();
  const spaces = new Map<string, Space>();
  const open = new Set<string>();
  let found: NonNullable<Facts["runDir"]>["found"] = { silent: true };
  for (const text of ran.stdout.split("\n")) {
    const line = parsed(text);
    if (line === undefined) continue;
    if ("begun" in line) open.add(line.begun);
    else if ("file" in line) {
      open.delete(line.file);
      if (line.text !== undefined) files.set(line.file, line.text);
    } else if ("folder" in line) {
      const { folder, ...answer } = line;
      open.delete(folder);
      found = answer;
    } else {
      open.delete(line.space);
      const { space, ...answer } = line;
      spaces.set(space, answer);
    }
  }
  for (const space of asked.spaces) if (!spaces.has(space)) spaces.set(space, { silent: true });
  // In the order that was asked for: answers come as they like.
  const order = new Map(asked.spaces.map((space) => [space, spaces.get(space)!]));
  const sorted = new Map(
    [...files].sort(([a], [b]) => (depth(a) === depth(b) ? (a < b ? -1 : 1) : depth(b) - depth(a))),
  );
  const limitsFile = starter !== undefined && files.has(starter) ? starter : "proc/self/limits";
  const silentFiles = [...open].filter((name) => !spaces.has(name) && name !== runDir);
  return {
    files: sorted,
    limitsFile,
    silentFiles,
    spaces: order,
    runDir: runDir === undefined ? undefined : { path: runDir, found },
  };
}

/** The deepest first: of control groups the own one comes before those above. */
const depth = (path: string): number => path.split("/").length;

/** The last line may be cut. */
function parsed(text: string): Line | undefined {
  try {
    return JSON.parse(text) as Line;
  } catch {
    return undefined;
  }
}

/** `proc/4711/limits`, of the process that started this one. Its number is that of the /proc at `root`, which may be the host's. */
function starterLimits(root: string): string | undefined {
  const parent = /^PPid:\s*([1-9]\d*)$/m.exec(procText(root, "status"))?.[1];
  return parent === undefined ? undefined : `proc/${parent}/limits`;
}

/** Of this process: made by the kernel itself, so that it cannot hang. */
function procText(root: string, name: string): string {
  try {
    return readFileSync(join(root, "proc/self", name), "utf8");
  } catch {
    return "";
  }
}
