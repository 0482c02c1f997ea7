/**
 * Entry of the agent: one daemon a node and job, started by the first rank that finds none (`athanor._spawn`) or by
 * `athanor agent`, and of its worker threads: the whole agent is this one file and `kernels.wasm`. What a thread does not
 * need is not evaluated in it: the modules are loaded when their role is known.
 */
import { isMainThread } from "node:worker_threads";
import { registerThread, runRegisteredThread } from "../base/threads.ts";

registerThread("io", async () => (await import("../storage/io-thread.ts")).run());
registerThread("hdf5", async () => (await import("../formats/hdf5/thread.ts")).run());
registerThread("tokenizer", async () => (await import("./tokenizer-thread.ts")).run());
registerThread("count", async () => (await import("../feed/count-thread.ts")).run());
registerThread("decode", async () => (await import("../feed/decode-thread.ts")).run());

if (isMainThread) await (await import("./daemon.ts")).main();
else await runRegisteredThread();
