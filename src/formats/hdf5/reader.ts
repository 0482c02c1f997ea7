/**
 * Reader: layout and rows of HDF5 files, from a thread of its own that this one waits for (`thread.ts`). Where the library goes
 * in circles over damaged metadata that thread is ended and the file is refused, now and (of the same version) later.
 *
 * @example
 * const { rows, fields } = await layoutAt("/d/a.h5");
 * const columns = await rowsAt("/d/a.h5", ["tokens"], 0, rows);
 */
import type { Worker } from "node:worker_threads";
import { AthanorError } from "../../base/errors.ts";
import { spawnThread } from "../../base/threads.ts";
import { ShardInvalid } from "../errors.ts";
import { tellUnfit } from "../stats.ts";
import type { BlockColumns } from "../types.ts";
import type { Hdf5Layout } from "./layout.ts";
import { PULSE_BYTES, PulseWatch } from "./pulse.ts";
import type { Hdf5Answer, Hdf5Request } from "./thread.ts";
import { tooLarge } from "./values.ts";

const WATCH_MS = 100;
const MAX_KNOWN = 1024;

class Circling extends Error {}

interface Running {
  worker: Worker;
  watch: PulseWatch;
}

let running: Promise<Running> | undefined;
/** The library, for the next thread. */
let compiled: WebAssembly.Module | undefined;
let tail: Promise<unknown> = Promise.resolve();
/** Files that lead the library in circles, by path and version. */
const circles = new Set<string>();

export async function layoutAt(path: string): Promise<Hdf5Layout> {
  const answer = await inTurn(() => askFile({ type: "layout", path }));
  if (answer.type === "layout") return answer.layout;
  throw new Error("unexpected answer of the HDF5 thread");
}

/**
 * Rows [from, to) of those fields that the file has. `places` (of a scan) gets where the chunks of a field lie, where that can be
 * told; a value that does not fit int64 is then no fault of its record.
 */
export async function rowsAt(
  path: string,
  names: readonly string[],
  from: number,
  to: number,
  places?: Map<string, readonly number[]>,
): Promise<BlockColumns> {
  const found: BlockColumns = { fields: new Map(), faults: new Map() };
  for (const name of names) {
    const answer = await inTurn(() => askFile({ type: "column", path, name, from, to, places: places !== undefined }));
    if (answer.type !== "column" || answer.column === undefined) continue;
    found.fields.set(name, answer.column);
    if (answer.places !== undefined) places?.set(name, answer.places);
    for (const [row, fault] of answer.faults) {
      if (!found.faults.has(row)) found.faults.set(row, AthanorError.fromRecord(fault));
    }
    const large = new Map(answer.tooLarge);
    const faultOf = (row: number): AthanorError => tooLarge(path, name, from + row, large.get(row)!);
    tellUnfit(answer.column, [...large.keys()], faultOf, places === undefined ? found.faults : undefined);
  }
  return found;
}

function inTurn<Result>(work: () => Promise<Result>): Promise<Result> {
  const turn = tail.then(work);
  tail = turn.catch(() => undefined);
  return turn;
}

/** Throws what the library says as AthanorError. */
async function askFile(request: Hdf5Request & { path: string }): Promise<Hdf5Answer> {
  const { path } = request;
  const known = await ask({ type: "version", path });
  const key = `${path} ${known.type === "version" ? known.version : ""}`;
  try {
    if (circles.has(key)) throw new Circling();
    return await ask(request);
  } catch (error) {
    if (!(error instanceof Circling)) throw error;
    if (circles.size >= MAX_KNOWN) circles.clear();
    circles.add(key);
    const of = request.type === "column" ? ` of dataset /${request.name}` : "";
    throw new ShardInvalid(
      `HDF5 metadata${of} leads in circles`,
      request.type === "column" ? { file: path, record: request.from } : { file: path },
      "the file is damaged: write it again",
    );
  }
}

async function ask(request: Hdf5Request): Promise<Hdf5Answer> {
  const { worker, watch } = await thread();
  let answer: Hdf5Answer;
  try {
    answer = await answerOf(worker, request, watch);
  } catch (error) {
    running = undefined;
    await worker.terminate();
    throw error;
  }
  if (answer.type === "failed") throw AthanorError.fromRecord(answer.error);
  return answer;
}

/** Rejects with Circling, or with what ended the thread. */
function answerOf(worker: Worker, request: Hdf5Request, watch: PulseWatch): Promise<Hdf5Answer> {
  return new Promise((resolve, reject) => {
    const onMessage = (answer: Hdf5Answer): void => finish(() => resolve(answer));
    const onError = (error: Error): void => finish(() => reject(error));
    const onExit = (code: number): void => finish(() => reject(new Error(`the HDF5 thread ended with code ${code}`)));
    const timer = setInterval(() => watch.circling() && finish(() => reject(new Circling())), WATCH_MS);
    const finish = (then: () => void): void => {
      clearInterval(timer);
      worker.off("message", onMessage).off("error", onError).off("exit", onExit);
      worker.unref();
      then();
    };
    worker.on("message", onMessage).on("error", onError).on("exit", onExit);
    // Only while an answer is awaited does the thread keep the process alive.
    worker.ref();
    worker.postMessage(request);
  });
}

function thread(): Promise<Running> {
  if (running === undefined) {
    const starting = start();
    running = starting;
    // A start that failed is tried again by the next one who needs the thread.
    starting.catch(() => {
      if (running === starting) running = undefined;
    });
  }
  return running;
}

async function start(): Promise<Running> {
  const worker = spawnThread("hdf5", new URL("./thread.js", import.meta.url));
  const forget = (): void => void (running = undefined);
  worker.on("error", forget).on("exit", forget);
  const pulse = new SharedArrayBuffer(PULSE_BYTES);
  const watch = new PulseWatch(pulse);
  const answer = await answerOf(worker, { type: "start", pulse, module: compiled }, watch);
  if (answer.type === "failed") {
    await worker.terminate();
    throw AthanorError.fromRecord(answer.error);
  }
  if (answer.type === "ready") compiled = answer.module;
  return { worker, watch };
}
