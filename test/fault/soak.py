#!/usr/bin/env python3
"""A long job that uses everything at little CPU, and what grows in it: `npm run soak`.

    npm run soak                        one hour
    npm run soak -- --minutes 10        shorter: sees only faster leaks

Three ranks train in epochs; evaluation loaders are opened and closed beside them, their own loaders closed and opened
again from their states; visitors come and go, every second one by SIGKILL; the agent is killed five times in the first
fifth of the time. Then the agent warms up for a tenth of it: several hundred sessions at once, and all of the above ten
times as fast. That brings its heap to the size that garbage gives it, and compiles what will be compiled: at the soak's
own pace both take the better part of an hour, and look like a leak. Then a tenth at that pace,
in which the heap takes its size for it. Behind that, every few seconds: memory (RSS; own, which is RSS without pages of
files), descriptors, threads and mappings of the agent and of each rank. Prints a slope an hour for each, by least
squares, and exits 1 when one counts (soak_slopes.py), when an epoch lost or repeated a sample, or something is left
behind.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python" / "src"), str(ROOT / "python" / "tests")]

import chaos_processes as processes  # noqa: E402
from chaos import EVAL_SAMPLES, SAMPLES, SHARDS, forget_outer_job, make_data  # noqa: E402
from chaos_rank import know  # noqa: E402
from chaos_trial import environment, send  # noqa: E402
from soak_rank import WARM, churn, start, train, visit  # noqa: E402
from soak_slopes import Limit, slope  # noqa: E402

WORLD, BATCH = 3, 10  # G = 30 divides the samples: each epoch has every sample once
LIMITS = {
    "rss": Limit(8.0, 3.0, "MiB"),
    "own": Limit(8.0, 3.0, "MiB"),
    "descriptors": Limit(2.0, 1.0, ""),
    "threads": Limit(2.0, 1.0, ""),
    "mappings": Limit(60.0, 10.0, ""),
}


@dataclass
class Series:
    """What was measured of one process."""

    seconds: list[float] = field(default_factory=list)
    values: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in LIMITS})

    def add(self, at: float, measured: dict[str, float]) -> None:
        self.seconds.append(at)
        for name, value in measured.items():
            self.values[name].append(value)


def measure(pid: int) -> dict[str, float] | None:
    """None when the process has gone."""
    home = Path("/proc", str(pid))
    try:
        rollup = dict(line.split(":") for line in (home / "smaps_rollup").read_text().splitlines()[1:])
        status = dict(line.split(":\t", 1) for line in (home / "status").read_text().splitlines())
        return {
            "rss": int(rollup["Rss"].split()[0]) / 1024,
            # Anonymous and shared memory. Not PSS: a file page counts there by the processes that have it mapped, and
            # any other Node.js or Python of the machine that starts or ends moved it by 25 MiB.
            "own": (int(rollup["Anonymous"].split()[0]) + int(rollup["Pss_Shmem"].split()[0])) / 1024,
            "descriptors": float(len(os.listdir(home / "fd"))),
            "threads": float(status["Threads"]),
            "mappings": float((home / "maps").read_text().count("\n")),
        }
    except (OSError, ValueError, KeyError):
        return None


class Soak:
    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self.args = args
        self.folder = folder
        self.job = f"soak-{os.getpid()}"
        self.length = args.minutes * 60
        self.warm = self.length * 0.3 + 2  # until then everything goes faster
        self.settled = math.inf  # when the heaps have their size
        self.sessions = min(1000, int(self.length * 1.5))
        # Three deaths without a batch between are an error by design: they keep some seconds apart.
        self.deaths = min(5, max(1, int(self.length / 5 / 6)))
        self.series: dict[str, Series] = {}
        self.ranks: dict[int, int] = {}
        self.faults: list[str] = []
        self.visits = 0

    def run(self) -> int:
        data = make_data(self.folder / "data", SAMPLES, SHARDS)
        evaluation = make_data(self.folder / "eval", EVAL_SAMPLES, 2)
        others = make_data(self.folder / "others", 120, 3)
        for rank in range(WORLD):
            work = (self.folder, data, evaluation, rank, WORLD, BATCH, self.args.pace)
            self.ranks[self._child(f"rank-{rank}.log", lambda work=work: train(*work))] = rank
        try:
            self._watch(others)
        finally:
            left = self._end()
        self._check(left)
        return self._report()

    def _goes_on(self, now: float) -> bool:
        """On a busy machine longer than asked for: with too few samples nothing could be said."""
        enough = self.settled + 12 * self.args.every
        return now < self.length or now < min(enough, 10 * self.length)

    def _child(self, log: str, work: Callable[[], None]) -> int:
        return start(self.folder, log, environment(self.job, "1s"), work)

    def _watch(self, others: Path) -> None:
        began = time.monotonic()
        deaths = [self.length / 5 * (k + 1) / self.deaths for k in range(self.deaths)]
        visited = measured = shown = 0.0
        visitors: set[int] = set()
        agent = churner = 0
        churned = False
        while self._goes_on(now := time.monotonic() - began) and not self.faults:
            warming = churner != 0 and math.isinf(self.settled)
            processes.reap({*self.ranks, *visitors})
            for pid in [*self.ranks, *visitors]:
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended and pid in visitors:
                    visitors.discard(pid)
                    churned = churned or pid == churner
                    if os.waitstatus_to_exitcode(status) not in (0, -signal.SIGKILL):
                        log = "churn.log" if pid == churner else "visitor.log"
                        self.faults.append(f"a visitor failed:\n{self._tail(log)}")
                elif ended:
                    rank = self.ranks.pop(pid)
                    self.faults.append(f"rank {rank} ended by itself:\n{self._tail(f'rank-{rank}.log')}")
            agents = processes.of_job(self.job)
            if agents and agents[0] != agent:
                agent = agents[0]
                self.series["agent"] = Series()  # another process: from here on
            if deaths and now >= deaths[0]:
                del deaths[0]
                send(agents, signal.SIGKILL)
            elif not deaths and churner == 0 and now >= self.length / 5 + 2:
                churner = self._child("churn.log", lambda: churn(others, self.sessions))
                visitors.add(churner)
            elif churned and now >= self.warm and math.isinf(self.settled):
                # V8 gives back half of its heap when the pace falls, and takes it again over some three minutes.
                self.settled = now + self.length / 10
                send(list(self.ranks), signal.SIGUSR1)
            elif now - visited >= (self.args.visit_every / WARM if warming else self.args.visit_every) and now > 5:
                visited = now
                self.visits += 1
                work = (others, self.visits, 6)
                visitors.add(self._child("visitor.log", lambda work=work: visit(*work)))
            if now - measured >= self.args.every:
                measured = now
                for pid, name in [(agent, "agent"), *((pid, f"rank {rank}") for pid, rank in self.ranks.items())]:
                    values = measure(pid)
                    if values is not None:
                        self.series.setdefault(name, Series()).add(now, values)
            if now - shown >= 60:
                shown = now
                told = {name: round(one.values["rss"][-1]) for name, one in self.series.items() if one.seconds}
                print(f"{now / 60:.0f} min: RSS in MiB {told}, {self.visits} visits", file=sys.stderr, flush=True)
            time.sleep(min(0.5, self.args.every / 2, self.args.visit_every / WARM))

    def _end(self) -> list[str]:
        send(list(self.ranks), signal.SIGTERM)
        patience = time.monotonic() + 30
        while self.ranks and time.monotonic() < patience:
            for pid in list(self.ranks):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    rank = self.ranks.pop(pid)
                    if status != 0:
                        self.faults.append(f"rank {rank} ended badly:\n{self._tail(f'rank-{rank}.log')}")
            time.sleep(0.05)
        left = processes.leftovers(self.job, 8.0)
        for pid in {*processes.children(), *processes.of_job(self.job)}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return left

    def _check(self, left: list[str]) -> None:
        if left:
            self.faults.append("left behind:\n" + "\n".join(left))
        epochs: dict[int, Counter[int]] = {}
        ranks: Counter[int] = Counter()
        for rank in range(WORLD):
            path = self.folder / f"ids-{rank}.jsonl"
            for line in path.read_text().splitlines() if path.exists() else []:
                one = json.loads(line)
                epochs.setdefault(one["epoch"], Counter()).update(one["ids"])
                ranks[one["epoch"]] += 1
        whole = [epoch for epoch, count in ranks.items() if count == WORLD]
        for epoch in whole:
            if epochs[epoch] != Counter(range(SAMPLES)):
                wrong = [number for number in range(SAMPLES) if epochs[epoch][number] != 1]
                self.faults.append(f"epoch {epoch}: {len(wrong)} samples not exactly once: {wrong[:5]}")
        if not whole:
            self.faults.append("no epoch came to its end")
        self.epochs = len(whole)

    def _report(self) -> int:
        print(f"{self.epochs} epochs of {SAMPLES} samples, {self.visits} visits, {self.deaths} deaths of the agent")
        print(f"{'':8} {'':12} {'first':>9} {'last':>9} {'slope an hour':>14} {'± error':>9} {'limit':>7}")
        found = []
        for name, one in sorted(self.series.items()):
            kept = [index for index, at in enumerate(one.seconds) if at >= self.settled]
            if len(kept) < 8:
                self.faults.append(f"{name}: {len(kept)} samples behind the first {self.settled:.0f} s are too few")
                continue
            for what, limit in LIMITS.items():
                line = slope([one.seconds[k] for k in kept], [one.values[what][k] for k in kept])
                bad = line.counts(limit)
                found.append({"process": name, "what": what, "perHour": round(line.per_hour, 3), "leak": bad})
                print(
                    f"{name:8} {what:12} {line.first:9.1f} {line.last:9.1f} {line.per_hour:14.2f} "
                    f"{line.error:9.2f} {limit.per_hour:7.0f} {limit.unit}{'   <- GROWS' if bad else ''}"
                )
        for fault in self.faults:
            print(fault)
        leaks = [f"{one['process']}: {one['what']}" for one in found if one["leak"]]
        print(
            json.dumps(
                {
                    "minutes": self.args.minutes,
                    "epochs": self.epochs,
                    "visits": self.visits,
                    "leaks": leaks,
                    "faults": len(self.faults),
                    "slopes": found,
                }
            )
        )
        return 1 if leaks or self.faults else 0

    def _tail(self, name: str) -> str:
        return (self.folder / name).read_text()[-3000:]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="npm run soak --", description="what grows in a long job")
    add = parser.add_argument
    add("--minutes", type=float, default=60.0, help="how long (default 60)")
    add("--every", type=float, default=3.0, help="seconds between samples (default 3)")
    add("--visit-every", type=float, default=4.0, help="seconds between visitors (default 4)")
    add("--pace", type=float, default=0.05, help="seconds of computing a batch (default 0.05)")
    add("--keep", type=Path, help="folder for logs and records, which stays")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    forget_outer_job()
    processes.become_reaper()
    know(SAMPLES)
    folder = args.keep or Path(tempfile.mkdtemp(prefix="athanor-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return Soak(args, folder).run()
    finally:
        if args.keep is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
