// What the README promises is there: its commands exist, and links inside the documentation lead somewhere.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { read, repositoryFiles, root } from "./tree.ts";

function help(...command: string[]): string {
  return execFileSync(process.execPath, [join(root, "dist", "src", "cli", "main.js"), ...command, "--help"], {
    encoding: "utf8",
  });
}

test("every command of the README exists, and every command is in the README", () => {
  const rows = [...read("README.md").matchAll(/^\| `athanor ([a-z]+)(?: ([a-z]+)\b)?/gm)];
  const promised = new Set(rows.map(([, command]) => command as string));
  const listed = help().split("Commands:")[1] ?? "";
  const offered = [...listed.matchAll(/^ {2}([a-z]+)\b/gm)]
    .map(([, command]) => command as string)
    .filter((name) => name !== "help");
  assert.deepEqual([...promised].sort(), offered.sort());
  for (const [, command, part] of rows) {
    if (part !== undefined)
      assert.match(help(command as string), new RegExp(`^ {2}${part}\\b`, "m"), `athanor ${command} ${part}`);
  }
});

test("links between pages lead to files", () => {
  const dead: string[] = [];
  for (const page of repositoryFiles().filter((path) => path.endsWith(".md"))) {
    for (const [, target] of read(page).matchAll(/\]\(([^)#\s]+)(?:#[^)]*)?\)/g)) {
      if (/^[a-z]+:/.test(target as string)) continue;
      if (!existsSync(join(root, dirname(page), target as string))) dead.push(`${page}: ${target}`);
    }
  }
  assert.deepEqual(dead, []);
});
