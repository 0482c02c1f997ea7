/**
 * Pulse: what a thread that calls the HDF5 library shows to the one that waits for it, and the CPU time it may take. Damaged
 * metadata can lead the library in circles, and nothing stops WebAssembly but the end of its thread. CPU time, not the clock's:
 * a slow mount or a loaded node is no fault of the file.
 *
 *   i32 calls begun and ended (odd: inside one) │ i32 CPU ms allowed for it │ i32 id of the thread in /proc, 0 unknown
 *
 * @example
 * const watch = new PulseWatch(shared); // every 100 ms: if (watch.circling()) await worker.terminate();
 */
import { readFileSync, readlinkSync } from "node:fs";
import type { Pulse } from "./library.ts";

export const PULSE_BYTES = 12;
/** For a call that decompresses nothing: such take a few ms. */
const CALL_MS = 700;
/** The slowest plugin, bzip2, gives some 8 MB/s. */
const BYTES_PER_MS = 1024;
/** /proc counts in 1/100 s on every Linux. */
const TICK_MS = 10;

/** In the thread that calls. */
export function startPulse(shared: SharedArrayBuffer): Pulse {
  const words = new Int32Array(shared);
  Atomics.store(words, 2, ownThread());
  return {
    begin(bytes) {
      Atomics.store(words, 1, CALL_MS + Math.ceil(bytes / BYTES_PER_MS));
      Atomics.add(words, 0, 1);
    },
    end() {
      Atomics.add(words, 0, 1);
    },
  };
}

/** In the thread that waits. */
export class PulseWatch {
  private readonly words: Int32Array;
  private call = 0;
  private since = 0;

  constructor(shared: SharedArrayBuffer) {
    this.words = new Int32Array(shared);
  }

  /** Has one call taken more CPU time than it may? */
  circling(): boolean {
    const call = Atomics.load(this.words, 0);
    const used = cpuMs(Atomics.load(this.words, 2));
    if (call !== this.call) {
      this.call = call;
      this.since = used;
    }
    return call % 2 !== 0 && used - this.since > Atomics.load(this.words, 1);
  }
}

function ownThread(): number {
  try {
    return Number(readlinkSync("/proc/thread-self").split("/").at(-1));
  } catch {
    return 0;
  }
}

function cpuMs(thread: number): number {
  if (thread === 0) return 0;
  try {
    // "TID (name) S …": utime and stime are fields 14 and 15; the name may hold anything.
    const text = readFileSync(`/proc/self/task/${thread}/stat`, "latin1");
    const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
    return (Number(fields[11]) + Number(fields[12])) * TICK_MS;
  } catch {
    return 0;
  }
}
