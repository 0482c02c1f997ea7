/**
 * Threads: starts a worker thread from a module, both from plain compiled files and from the bundled agent.
 * There a thread is one file: that of its role, else the agent's own, which holds all and takes 40 ms longer to compile in each thread.
 *
 * A thread module exports `run(): void`, is registered in the bundle through `registerThread` or `registerThreadFile`, and hears all it needs
 * through `parentPort`.
 */
import { Worker, workerData } from "node:worker_threads";
import { fileURLToPath } from "node:url";

/**
 * "io" reads files, "decode" turns raw bytes into rows, "hdf5" owns the HDF5 library of the thread that started it,
 * "tokenizer" compiles one and ends, "count" counts the tokens of records, "files" copies files.
 */
export type ThreadRole = "io" | "decode" | "hdf5" | "tokenizer" | "count" | "files";

interface ThreadData {
  role: ThreadRole;
  module: string;
}

const bundled = new Map<ThreadRole, () => Promise<void>>();

/** Called by the bundle's entry for every thread module it contains. */
export function registerThread(role: ThreadRole, run: () => Promise<void>): void {
  bundled.set(role, run);
}

const files = new Map<ThreadRole, string>();

/** Called by an entry of the bundle for roles with a bundle of their own: a file beside it. */
export function registerThreadFile(role: ThreadRole, name: string): void {
  files.set(role, name);
}

/** In a worker of the bundle: runs the module of its role. */
export async function runRegisteredThread(): Promise<void> {
  const { role } = workerData as ThreadData;
  const run = bundled.get(role);
  if (run === undefined) throw new Error(`no thread module for role ${role} in this bundle`);
  await run();
}

/** Starts a thread. `module`: URL of the compiled thread module (unused inside the bundle). */
export function spawnThread(role: ThreadRole, module: URL): Worker {
  const own = files.get(role) ?? (bundled.size > 0 ? undefined : "thread-main.js");
  const entry = fileURLToPath(own === undefined ? import.meta.url : new URL(own, import.meta.url));
  const threadData: ThreadData = { role, module: module.href };
  // Without execArgv a thread inherits flags such as --input-type, which make a file entry fail.
  return new Worker(entry, { workerData: threadData, stdout: false, stderr: false, execArgv: [] });
}
