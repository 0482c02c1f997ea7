/**
 * Opens and stats of a contender, by strace: what a metadata server would be asked. Start-up until the first batch, and a run of
 * samples behind it; one rank, whatever processes and threads it starts. Only calls whose path, or whose file, lies in the
 * contender's data are counted: not its imports, nor Athanor's program.
 */
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { endAgent, OPEN_MS } from "./measure.ts";
import type { PeerContender } from "./peer-list.ts";
import type { PeerRuns } from "./peer-runs.ts";
import { Crew } from "./rank.ts";

export interface Opens {
  name: string;
  /** Until the first batch. */
  start: Calls;
  /** Behind it, `samples` samples long. */
  run: Calls;
  samples: number;
}

export interface Calls {
  opens: number;
  /** stat, fstat, lstat, newfstatat, statx, access. */
  stats: number;
}

/** MosaicML's lock is held by the run itself; see loaders.py. */
const LOCKED = "ATHANOR_BENCH_LOCKED=1";
const OPEN = ["open", "openat"];
const STAT = ["stat", "fstat", "lstat", "newfstatat", "statx", "access", "faccessat", "faccessat2"];

export async function strace(contender: PeerContender, runs: PeerRuns, batch: number, samples: number): Promise<Opens> {
  const folder = await mkdtemp(join(tmpdir(), "athanor-opens-"));
  const trace = join(folder, "strace");
  const job = `bench-${process.pid}-opens`;
  // --seccomp-bpf: only these calls stop a process. -y: the path behind a file descriptor.
  const calls = `trace=${[...OPEN, ...STAT].join(",")}`;
  const wrapper = [
    "strace",
    "-f",
    "--seccomp-bpf",
    "-qq",
    "-y",
    "-e",
    calls,
    "-e",
    "signal=none",
    "-E",
    LOCKED,
    "-o",
    trace,
  ];
  const data = runs.options.folderOf(contender.data);
  let crew: Crew | undefined;
  try {
    crew = await Crew.start(contender.name, 1, runs.python(contender), "torch", folder, {
      wrapper,
      contender: contender.loader,
    });
    const before = countCalls(await readFile(trace, "latin1"), data);
    await crew.all(() => runs.open(contender, batch, 0, 1, job), OPEN_MS);
    const first = countCalls(await readFile(trace, "latin1"), data);
    await crew.all(() => ({ cmd: "run", seconds: OPEN_MS / 2000, step_ms: 0, samples }), OPEN_MS);
    const last = countCalls(await readFile(trace, "latin1"), data);
    await crew.all(() => ({ cmd: "close" }), OPEN_MS);
    const between = (a: Calls, b: Calls): Calls => ({ opens: b.opens - a.opens, stats: b.stats - a.stats });
    return {
      name: contender.name,
      start: between(before, first),
      run: between(first, last),
      samples: Math.max(1, Math.floor(samples / batch)) * batch,
    };
  } finally {
    await endAgent(job); // strace lives as long as what it traces
    await crew?.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

/** Calls of a trace of `strace -f -y` on `root` and what lies below it, failed ones included: they are asked, too. */
export function countCalls(trace: string, root: string): Calls {
  const found: Calls = { opens: 0, stats: 0 };
  for (const line of trace.split("\n")) {
    // `<... openat resumed>` is the second half of a line that was counted.
    const call = /^\s*(?:\d+\s+)?([a-z0-9]+)\(/.exec(line)?.[1];
    if (call === undefined || !(line.includes(`"${root}`) || line.includes(`<${root}`))) continue;
    if (OPEN.includes(call)) found.opens++;
    else if (STAT.includes(call)) found.stats++;
  }
  return found;
}
