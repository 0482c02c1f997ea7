// Builds everything that runs: TypeScript → dist/, AssemblyScript → dist/kernels.wasm, the agent → dist/agent*.js.
// Run by the set-up; under a second when nothing changed. Goes on after a type error, so that all faults show; exit 1.
import { spawnSync } from "node:child_process";
import { copyFileSync, chmodSync, existsSync, mkdirSync, readdirSync, rmSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { buildHdf5 } from "./build-hdf5.mjs";

/** Bundles of the agent and their entries in src/agent: the main thread, I/O threads, decode threads. */
const AGENT = [
  ["agent", "main"],
  ["agent-io", "io-main"],
  ["agent-decode", "decode-main"],
];
const root = dirname(dirname(fileURLToPath(import.meta.url)));
const run = (name, args) => {
  const { status, error } = spawnSync(join(root, "node_modules", ".bin", name), args, { cwd: root, stdio: "inherit" });
  if (error) throw error;
  if (status !== 0) process.exitCode = 1;
};
const newest = (folder) =>
  Math.max(...readdirSync(folder, { recursive: true }).map((f) => statSync(join(folder, f)).mtimeMs));

mkdirSync(join(root, "dist"), { recursive: true });

// Outputs of sources that are gone: a stale test would still run.
for (const part of ["src", "test", "bench"]) {
  const folder = join(root, "dist", part);
  if (!existsSync(folder)) continue;
  for (const file of readdirSync(folder, { recursive: true })) {
    const source = /^(.+?)(\.d\.ts|\.js|\.js\.map)$/.exec(file)?.[1];
    if (source !== undefined && !existsSync(join(root, part, `${source}.ts`))) rmSync(join(folder, file));
  }
}
// tsc 7.0.2 keeps old diagnostics when only `lib` has changed.
const info = join(root, "dist", ".tsbuildinfo");
if (existsSync(info) && statSync(info).mtimeMs < statSync(join(root, "tsconfig.json")).mtimeMs) rmSync(info);
run("tsc", ["-p", "tsconfig.json"]);
const cli = join(root, "dist", "src", "cli", "main.js");
if (existsSync(cli)) chmodSync(cli, 0o755);

const assembly = join(root, "src", "kernels", "assembly");
const wasm = join(root, "dist", "kernels.wasm");
if (
  existsSync(join(assembly, "index.ts")) &&
  (!existsSync(wasm) || statSync(wasm).mtimeMs < Math.max(newest(assembly), newest(import.meta.dirname)))
) {
  run("asc", [
    "src/kernels/assembly/index.ts",
    "-O3",
    "--noAssert",
    "--runtime",
    "stub",
    "--enable",
    "simd,bulk-memory,threads",
    "--importMemory",
    "--sharedMemory",
    "--initialMemory",
    "4",
    "--maximumMemory",
    "65536",
    "--memoryBase",
    "1024",
    "-o",
    wasm,
  ]);
}
if (existsSync(join(root, "src", "agent", "main.ts"))) {
  run("esbuild", [
    ...AGENT.map(([name, entry]) => `${name}=src/agent/${entry}.ts`),
    "--bundle",
    "--platform=node",
    "--format=esm",
    "--target=node20",
    "--outdir=dist",
    "--log-level=warning",
    "--minify-whitespace",
    "--minify-syntax",
    "--sourcemap",
    // Native and optional: taken from node_modules where they are, else their fallbacks.
    "--external:@toondepauw/node-zstd",
    "--external:lz4-napi",
    "--banner:js=import{createRequire as athRequire}from'node:module';const require=athRequire(import.meta.url);",
  ]);
  // Into the Python package too: `pip install ./python` carries the agent.
  const packaged = join(root, "python", "src", "athanor", "_agent");
  mkdirSync(packaged, { recursive: true });
  for (const name of [...AGENT.map(([file]) => `${file}.js`), "kernels.wasm"])
    copyFileSync(join(root, "dist", name), join(packaged, name));
  buildHdf5(root, packaged);
}
