/** The thread of storage-process.ts that makes the calls: a job in, an answer out, and in shared memory where it is. */
import { parentPort, workerData } from "node:worker_threads";
import { errnoName } from "../base/errno.ts";
import { doJob } from "./storage-io.ts";
import { STEPS } from "./storage-jobs.ts";
import type { Job, Line, Span, Step } from "./storage-jobs.ts";

/** Of a job: number of the span, byte, step; counted up with each call. */
const at = workerData as Float64Array;

parentPort!.on("message", (job: Job) => {
  const spans: readonly Span[] = "spans" in job ? job.spans : [];
  let span = 0;
  let step: Step = "look at";
  let last = "";
  const watch = (path: string, byte: number, next: Step): void => {
    step = next;
    last = path;
    // Jobs go through their spans in order, some of them twice.
    if (spans[span]?.path !== path)
      span = spans[span + 1]?.path === path ? span + 1 : spans.findIndex((each) => each.path === path);
    at[0] = span;
    at[1] = byte;
    at[2] = STEPS.indexOf(next);
    at[3]!++;
  };
  const answer = (): Line => {
    try {
      return { done: doJob(job, watch) };
    } catch (error) {
      const { message, path = last } = error as NodeJS.ErrnoException;
      const code = errnoName(error) ?? "EIO";
      return { fault: { code, message, path, byteOffset: at[1], step } };
    }
  };
  parentPort!.postMessage(answer());
});
