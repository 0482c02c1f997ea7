// Builds everything that runs: TypeScript → dist/, AssemblyScript → dist/kernels.wasm, the agent bundle → dist/agent.js.
// Run by the set-up; quick when nothing changed.
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, copyFileSync, statSync, readdirSync } from "node:fs";
import { join, dirname } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const bin = (name) => join(root, "node_modules", ".bin", name);
const run = (name, args) => execFileSync(bin(name), args, { cwd: root, stdio: "inherit" });
const newest = (folder) =>
  Math.max(...readdirSync(folder, { recursive: true }).map((f) => statSync(join(folder, f)).mtimeMs));

mkdirSync(join(root, "dist"), { recursive: true });
run("tsc", ["-p", "tsconfig.json"]);

const assembly = join(root, "src", "kernels", "assembly");
const wasm = join(root, "dist", "kernels.wasm");
if (existsSync(join(assembly, "index.ts")) && (!existsSync(wasm) || statSync(wasm).mtimeMs < newest(assembly))) {
  run("asc", [
    "src/kernels/assembly/index.ts", "-O3", "--noAssert", "--runtime", "stub",
    "--enable", "simd,bulk-memory,threads", "--importMemory", "--sharedMemory", "--initialMemory", "4",
    "--maximumMemory", "65536", "--memoryBase", "1024", "-o", wasm,
  ]);
}
if (existsSync(join(root, "src", "agent", "main.ts"))) {
  run("esbuild", [
    "src/agent/main.ts", "--bundle", "--platform=node", "--format=esm", "--target=node20", "--external:koffi",
    "--outfile=dist/agent.js", "--log-level=warning", "--sourcemap",
    "--banner:js=import{createRequire as athRequire}from'node:module';const require=athRequire(import.meta.url);",
  ]);
}
