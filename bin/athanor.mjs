#!/usr/bin/env node
// The command: hands over to the built program. It exists before the build, so that `npx athanor` in a fresh clone says
// what is missing instead of linking nothing.
import { existsSync } from "node:fs";

const program = new URL("../dist/src/cli/keeper.js", import.meta.url);
if (existsSync(program)) {
  await import(program.href);
} else {
  console.error("athanor: not built yet; run `npm run setup` once in this folder");
  process.exitCode = 3;
}
