/**
 * Entry of the agent: one daemon a node and job, started by the first rank that finds none (`athanor._spawn`) or by
 * `athanor agent`, and of its rarer threads. Those that every agent has are bundles of their own beside it. What a thread does not
 * need is not evaluated in it: the modules are loaded when their role is known.
 */
import { isMainThread } from "node:worker_threads";
import { registerThread, registerThreadFile, runRegisteredThread } from "../base/threads.ts";

registerThreadFile("io", "agent-io.js");
registerThreadFile("decode", "agent-decode.js");
registerThread("hdf5", async () => (await import("../formats/hdf5/thread.ts")).run());
registerThread("tokenizer", async () => (await import("./tokenizer-thread.ts")).run());
registerThread("count", async () => (await import("../feed/count-thread.ts")).run());

if (isMainThread) await (await import("./daemon.ts")).main();
else await runRegisteredThread();
