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

/** `places`: absolute paths of file systems whose space is wanted. */
export async function readFacts(
  root: string,
  places: readonly string[],
  timeoutMs: number,
): Promise<Pick<Facts, "files" | "silentFiles" | "spaces">> {
  const asked: Asked = {
    root,
    patterns: [...PATTERNS, ...groupFiles(groupsOf(root))],
    spaces: places,
  };
  // Node has to start first: a short limit is for calls to servers.
  const limit = { timeoutMs: Math.max(timeoutMs, CALL_MS) };
  const ran = await runTool(process.execPath, [READER, JSON.stringify(asked)], limit);
  const files = new Map<string, string>();
  const spaces = new Map<string, Space>();
  const open = new Set<string>();
  for (const text of ran.stdout.split("\n")) {
    const line = parsed(text);
    if (line === undefined) continue;
    if ("begun" in line) open.add(line.begun);
    else if ("file" in line) {
      open.delete(line.file);
      if (line.text !== undefined) files.set(line.file, line.text);
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
  return { files: sorted, silentFiles: [...open].filter((name) => !spaces.has(name)), spaces: order };
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

function groupsOf(root: string): string {
  try {
    return readFileSync(join(root, "proc/self/cgroup"), "utf8");
  } catch {
    return "";
  }
}
