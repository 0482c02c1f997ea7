// Imports go down the list of rooms (docs/design.md §3) and nowhere else.
import assert from "node:assert/strict";
import { posix } from "node:path";
import { test } from "node:test";
import { read, repositoryFiles } from "./tree.ts";

/** From the ground up: a room may import from itself and from the rooms before it. */
const ROOMS = [
  "base",
  "storage",
  "lustre",
  "placement",
  "kernels",
  "tokenizer",
  "formats",
  "order",
  "dataset",
  "telemetry",
  "feed",
  "agent",
  "staging",
  "prepare",
  "doctor",
  "bench",
  "cluster",
  "pipeline",
  "dashboard",
  "cli",
];

/** Rooms that know nothing of sockets, files or clocks (design §3), and what of Node they may use all the same. */
const PURE: Record<string, RegExp> = {
  order: /^node:(crypto|buffer|util)$/,
  tokenizer: /^node:(crypto|buffer)$/,
  formats: /^node:(zlib|buffer|util)$/,
  kernels: /^node:(fs|fs\/promises|url|path|buffer|util)$/, // loads its own .wasm
};

/** The one way out of a pure room: HDF5's library reads files by path, in a thread of its own (design §4.2, decision 0017). */
const READS_ITSELF = "src/formats/hdf5/";
const ITSELF = /^node:(fs|path|url|v8|vm|worker_threads|zlib)$/;

function specifiers(source: string): string[] {
  const code = source.replace(/\/\*[\s\S]*?\*\//g, "").replace(/^\s*\/\/.*$/gm, "");
  const found = code.matchAll(/(?:\bfrom\s*|\bimport\s*\(\s*|\bimport\s+|new URL\(\s*)"([^"\n]+)"/g);
  return [...found].map(([, specifier]) => specifier as string);
}

const sources = repositoryFiles().filter(
  (path) => /^src\/.*\.ts$/.test(path) && !path.startsWith("src/kernels/assembly/"),
);

test("the pattern sees every form of import", () => {
  const text = [
    'import a from "./a.ts";',
    'import type { B } from "../b.ts";',
    'import "./c.ts";',
    'export { d } from "./d.ts";',
    'await import("./e.ts");',
    'new URL("./f.js", import.meta.url)',
    'import {\n  g,\n} from "./g.ts";',
    '// import "./no.ts"',
    '/* import "./no.ts" */',
  ].join("\n");
  const want = ["./a.ts", "../b.ts", "./c.ts", "./d.ts", "./e.ts", "./f.js", "./g.ts"];
  assert.deepEqual(specifiers(text), want);
});

test("imports only go down the list of rooms", () => {
  assert.ok(sources.length > 10);
  const wrong: string[] = [];
  for (const path of sources) {
    const room = path.split("/")[1] as string;
    if (!path.slice("src/".length).includes("/")) continue; // src/index.ts, the public door
    if (!ROOMS.includes(room)) wrong.push(`${path}: src/${room} is no room of the house`);
    for (const specifier of specifiers(read(path))) {
      if (!specifier.startsWith(".")) {
        const allowed = path.startsWith(READS_ITSELF) ? ITSELF : PURE[room];
        if (allowed && specifier.startsWith("node:") && !allowed.test(specifier))
          wrong.push(`${path}: ${specifier} in a pure room`);
        continue;
      }
      const target = posix.join(posix.dirname(path), specifier);
      const other = target.split("/")[1] as string;
      if (!target.startsWith("src/")) {
        if (specifier.endsWith(".ts")) wrong.push(`${path}: ${specifier} leaves src/`);
      } else if (ROOMS.indexOf(other) > ROOMS.indexOf(room)) wrong.push(`${path}: ${specifier} goes up`);
    }
  }
  assert.deepEqual(wrong, []);
});
