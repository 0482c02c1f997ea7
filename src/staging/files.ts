/**
 * Files: operations on files of a data mount, done by a thread of their own (`file-thread.ts`), one at a time. What `storage/` is for
 * reading, this is for copying: nothing waits for a call that hangs but whoever asked for it.
 *
 * Contract: a failed call rejects with a clear error; a call that takes more than ten seconds without progress is told of once.
 *
 * @example
 * const files = new Files({ tell: console.warn });
 * const { crc32c } = await files.call({ op: "copy", from, to, expected: { size, mtimeNs } });
 * await files.close();
 */
import type { Worker } from "node:worker_threads";
import { spawnThread } from "../base/threads.ts";
import { formatDuration } from "../base/units.ts";
import { systemError } from "../storage/errors.ts";
import { noRoom } from "../storage/no-room.ts";
import { CopyDiffers, CopyReleased, CopySourceChanged, CopyWrite } from "./errors.ts";
import type { FileFault, FileReply, FileRequest, FileResults } from "./file-thread.ts";

export interface FilesOptions {
  /** A call that hangs, in words. */
  tell?: (text: string) => void;
  /** Milliseconds. @default 10000 */
  hangAfterMs?: number;
}

/** Calls of a working file system return sooner. */
const PATIENCE_MS = 2000;

interface Job {
  request: FileRequest;
  progress: ((done: number) => void) | undefined;
  resolve(value: never): void;
  reject(error: Error): void;
}

export class Files {
  private readonly options: Required<FilesOptions>;
  private worker: Worker | undefined;
  private job: Job | undefined;
  private timer: NodeJS.Timeout | undefined;

  constructor({ tell = () => undefined, hangAfterMs = 10_000 }: FilesOptions = {}) {
    this.options = { tell, hangAfterMs };
  }

  /** The one before must be done. */
  call<Op extends keyof FileResults>(
    request: FileRequest & { op: Op },
    progress?: (done: number) => void,
  ): Promise<FileResults[Op]> {
    if (this.job !== undefined) throw new Error("one call at a time");
    this.worker ??= this.start();
    return new Promise((resolve, reject) => {
      this.job = { request, progress, resolve, reject };
      this.worker!.ref();
      this.worker!.postMessage(request);
      this.watch();
    });
  }

  /** False: a call hangs, and a process that exits would wait for it for ever. */
  async close(): Promise<boolean> {
    clearTimeout(this.timer);
    const { worker } = this;
    if (worker === undefined) return true;
    worker.removeAllListeners();
    let late: NodeJS.Timeout | undefined;
    const patience = new Promise<false>((resolve) => (late = setTimeout(() => resolve(false), PATIENCE_MS)));
    const ended = await Promise.race([worker.terminate().then(() => true), patience]);
    clearTimeout(late);
    worker.unref();
    return ended;
  }

  private start(): Worker {
    const worker = spawnThread("files", new URL("./file-thread.js", import.meta.url));
    worker.on("message", (reply: FileReply) => this.receive(reply));
    worker.on("error", (error) => this.settle()?.reject(error));
    return worker;
  }

  private receive(reply: FileReply): void {
    if ("done" in reply) {
      this.watch();
      return this.job?.progress?.(reply.done);
    }
    const job = this.settle();
    if (job === undefined) return;
    if ("fault" in reply) job.reject(clear(reply.fault));
    else job.resolve(reply.value as never);
  }

  private settle(): Job | undefined {
    const { job } = this;
    this.job = undefined;
    clearTimeout(this.timer);
    this.worker?.unref();
    return job;
  }

  private watch(): void {
    const { tell, hangAfterMs } = this.options;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      const { request } = this.job!;
      const path = request.op === "copy" ? `${request.from} to ${request.to}` : request.path;
      tell(`waiting for storage: ${request.op} of ${path} for ${formatDuration(hangAfterMs / 1000)}`);
    }, hangAfterMs).unref();
  }
}

function clear({ code, message, path, writing }: FileFault): Error {
  switch (code) {
    case "CHANGED":
      return new CopySourceChanged(
        `changed while it was copied: ${message}`,
        { file: path },
        "end what writes there; the same line goes on with the other files",
      );
    case "EMPTY":
      return new CopyReleased(`has bytes but ${message}: released to an archive?`, { file: path }, RESTORE);
    case "DIFFERS":
      return new CopyDiffers(
        `the copy is not what was written: ${message}`,
        { file: path },
        "it was not kept; check memory, network and disks of this node before anything else is copied",
      );
    default:
      if (!writing) return systemError({ code, message, path, byteOffset: undefined });
      return new CopyWrite(
        `writing failed with ${code}`,
        { file: path },
        noRoom({ code }, path) ?? "check the folder's owner, its mode and the mount; the same line goes on",
        message,
      );
  }
}

export const RESTORE = "`lfs hsm_restore FILE` brings it back; the same line goes on then";
