/**
 * Thread: owns the HDF5 library of one reader. Its file-system calls block it alone, and it can be ended where the library hangs.
 *
 * Messages in: `Hdf5Request`; out: `Hdf5Answer`. One at a time.
 */
import { parentPort } from "node:worker_threads";
import { toErrorRecord, type ErrorRecord } from "../../base/errors.ts";
import type { Column } from "../types.ts";
import { openFile, versionOf } from "./file.ts";
import type { Hdf5Layout } from "./layout.ts";
import { liveLibrary, loadOnce, setPulse } from "./library.ts";
import { startPulse } from "./pulse.ts";
import { readColumn } from "./rows.ts";

export type Hdf5Request =
  | { type: "start"; pulse: SharedArrayBuffer; module: WebAssembly.Module | undefined }
  | { type: "version"; path: string }
  | { type: "layout"; path: string }
  | { type: "column"; path: string; name: string; from: number; to: number; places: boolean };

export type Hdf5Answer =
  | { type: "ready"; module: WebAssembly.Module }
  | { type: "version"; version: string }
  | { type: "layout"; layout: Hdf5Layout }
  | {
      type: "column";
      column: Column | undefined;
      faults: readonly (readonly [number, ErrorRecord])[];
      /** See `ReadColumn`. */
      tooLarge: readonly (readonly [number, bigint])[];
      places: readonly number[] | undefined;
    }
  | { type: "failed"; error: ErrorRecord };

export function run(): void {
  const port = parentPort;
  if (port === null) throw new Error("the HDF5 thread must run in a worker");
  port.on("message", (request: Hdf5Request) => {
    answer(request).then(
      (found) => port.postMessage(found, buffersOf(found)),
      (error: unknown) => port.postMessage({ type: "failed", error: toErrorRecord(error) } satisfies Hdf5Answer),
    );
  });
}

async function answer(request: Hdf5Request): Promise<Hdf5Answer> {
  if (request.type === "start") {
    setPulse(startPulse(request.pulse));
    const { module } = await loadOnce(request.module);
    await liveLibrary();
    return { type: "ready", module };
  }
  if (request.type === "version") return { type: "version", version: versionOf(request.path).key };
  if (request.type === "layout") return { type: "layout", layout: (await openFile(request.path)).layout };
  const read = await readColumn(request.path, request.name, request.from, request.to, request.places);
  const faults = [...(read?.faults ?? [])].map(([row, fault]) => [row, fault.toRecord()] as const);
  const tooLarge = [...(read?.tooLarge ?? [])];
  return { type: "column", column: read?.column, faults, tooLarge, places: read?.places };
}

/** Moved, not copied. */
function buffersOf(found: Hdf5Answer): ArrayBuffer[] {
  if (found.type !== "column" || found.column === undefined) return [];
  return [found.column.values.buffer as ArrayBuffer, found.column.ends.buffer as ArrayBuffer];
}
