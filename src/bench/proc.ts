/**
 * Proc: what /proc says of a process: CPU seconds, memory, bytes read; and which process is our agent.
 * Only files of /proc are read here, never a data mount.
 */
import { readdirSync, readFileSync } from "node:fs";

export interface Usage {
  /** User + system, all threads, seconds (resolution 10 ms). */
  cpuSeconds: number;
  /** Bytes asked of read() and pread(). */
  readBytes: number;
  /** Bytes fetched from the block layer. */
  diskBytes: number;
  /** read() and its like, sockets and pipes too. */
  readCalls: number;
  /** Page faults that had to read. */
  faults: number;
}

/** Clock ticks a second in /proc/PID/stat: USER_HZ, 100 on every Linux architecture Node runs on. */
const TICKS = 100;

/** Undefined when the process is gone. */
export function usage(pid: number): Usage | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    // Fields behind the command name, which may itself hold spaces and brackets: state is field 3.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    const io = readFileSync(`/proc/${pid}/io`, "latin1");
    return {
      cpuSeconds: (Number(fields[11]) + Number(fields[12])) / TICKS,
      readBytes: number(io, /^rchar: (\d+)/m),
      diskBytes: number(io, /^read_bytes: (\d+)/m),
      readCalls: number(io, /^syscr: (\d+)/m),
      faults: Number(fields[9]),
    };
  } catch {
    return undefined;
  }
}

/** Proportional set size: pages shared with n processes count 1/n. Bytes; undefined when the process is gone. */
export function pss(pid: number): number | undefined {
  return rollup(pid, /^Pss:\s+(\d+) kB/m);
}

/** The part of `pss` that is pages of files. */
export function filePss(pid: number): number | undefined {
  return rollup(pid, /^Pss_File:\s+(\d+) kB/m);
}

function rollup(pid: number, line: RegExp): number | undefined {
  try {
    return 1024 * number(readFileSync(`/proc/${pid}/smaps_rollup`, "latin1"), line);
  } catch {
    return undefined;
  }
}

/** The agent of job `job`, by the title it gives itself. A zombie has none. */
export function findAgent(job: string): number | undefined {
  for (const entry of readdirSync("/proc")) {
    if (!/^\d+$/.test(entry)) continue;
    try {
      const title = readFileSync(`/proc/${entry}/cmdline`, "utf8").replace(/\0+$/, "");
      if (title === `athanor-agent ${job}`) return Number(entry);
    } catch {
      // It ended between the listing and the reading.
    }
  }
  return undefined;
}

function number(text: string, pattern: RegExp): number {
  return Number(pattern.exec(text)?.[1] ?? Number.NaN);
}
