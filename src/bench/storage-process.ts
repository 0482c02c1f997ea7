/**
 * One process of `bench storage`: jobs on stdin, a line of JSON each; answers on stdout (storage-jobs.ts). The calls are made by a thread, so
 * that it still tells where it is when one of them does not return. Ends with its stdin, after it has removed the folder that it made: also
 * when whoever started it was killed.
 */
import { createInterface } from "node:readline";
import { Worker } from "node:worker_threads";
import { STEPS, pathOf } from "./storage-jobs.ts";
import type { Job, Line } from "./storage-jobs.ts";

/** How often it tells where it is, and how long it tries to remove what it made. Milliseconds. */
const TELL_MS = 200;
const REMOVE_MS = 600_000;
const AGAIN_MS = 500;

const at = new Float64Array(new SharedArrayBuffer(32));
const thread = new Worker(new URL("./storage-thread.js", import.meta.url), { workerData: at, execArgv: [] });
const print = (line: Line): void => void process.stdout.write(`${JSON.stringify(line)}\n`);
const remove = (): void => thread.postMessage({ do: "remove", paths: [made!] } satisfies Job);
// `exit` would wait for the thread.
const end = (): void => void process.kill(process.pid, "SIGKILL");
let job: Job | undefined;
let made: string | undefined;
let told = 0;
let over = false;

thread.on("message", (line: Line) => {
  if (over) return "fault" in line && made !== undefined ? void setTimeout(remove, AGAIN_MS) : end();
  if ("done" in line && "folder" in line.done) made = line.done.folder;
  if (job?.do === "remove" && "done" in line && job.paths.includes(made ?? "")) made = undefined;
  job = undefined;
  print(line);
});
thread.on("error", (error: Error) => {
  process.stderr.write(`${error.stack}\n`);
  end();
});

setInterval(() => {
  if (job === undefined || at[3] === told) return;
  told = at[3]!;
  print({ at: { path: pathOf(job, at[0]), byte: at[1]!, step: STEPS[at[2]!]! } });
}, TELL_MS);

createInterface({ input: process.stdin })
  .on("line", (line) => {
    job = JSON.parse(line) as Job;
    thread.postMessage(job);
  })
  .on("close", () => {
    if (made === undefined) return end();
    over = true;
    remove();
    setTimeout(end, REMOVE_MS);
  });
// Nobody reads any more.
process.stdout.on("error", () => undefined);
