"""The trials of one peer: launch, kill -9 everything, launch again from the last saved state, count.

    python trial.py PEER --workers N --data DIR --scratch DIR --kills K --seed S     one line of JSON a trial

Ranks are forks of this process, in which the peer is imported once. It is the reaper of all that they start, so a kill
takes workers, servers and agents too, as the end of a container does.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import random
import re
import shutil
import signal
import socket
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from count import Launch, Steps, count
from rank import Spec, end_quietly, run, state_file

SAMPLES = 4800  # a multiple of all that divides: 4 ranks x 2 workers x 6, 3 x 2 x 8, and 24 shards
GLOBAL = 24
SAVE_EVERY = 10
STEPS = SAMPLES // GLOBAL
STILL_SECONDS = 120.0  # without any batch: it hangs
# What MosaicML Streaming, Python's SharedMemory and semaphores, and torch call their files.
_PEERS_SHM = re.compile(r"\d{6}_[a-z_]+|psm_[0-9a-f]+|sem\.mp-\w+|torch_.+")
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


@dataclass(frozen=True)
class Scenario:
    name: str
    text: str
    kills: tuple[tuple[float, float], ...] = ()  # each somewhere between these parts of an epoch
    shapes: tuple[tuple[int, int], ...] = ((4, 6),)  # ranks and batch of a rank; the last one stays
    epoch: int = 0  # the one that is killed in, and counted
    saved: tuple[int, ...] = ()  # instead of `kills`: one kill, soon after one of these steps


SCENARIOS = (
    Scenario("unbroken", "no kill, 4 ranks"),
    Scenario("resume", "kill, resume on 4 ranks", ((0.06, 0.95),)),
    Scenario("twice", "kill, resume, kill, resume", ((0.1, 0.45), (0.55, 0.95))),
    Scenario("epoch2", "kill in the second epoch, resume", ((0.06, 0.95),), epoch=1),
    Scenario("elastic", "kill, resume on 3 ranks, same global batch", ((0.06, 0.95),), ((4, 6), (3, 8))),
    # After these steps 3 ranks x 2 workers x 6 divide the rest: the end of the epoch takes nothing from the count.
    Scenario(
        "shrunk", "kill, resume on 3 ranks, same batch a rank", (), ((4, 6), (3, 6)), 0, (20, 50, 80, 110, 140, 170)
    ),
)


class Ended(Exception):
    """A trial that came to no count: (outcome, message)."""


def descendants() -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            stat = Path("/proc", entry, "stat").read_text()
            parents.setdefault(int(stat[stat.rindex(")") + 2 :].split()[1]), []).append(int(entry))
    found, todo = [], [os.getpid()]
    while todo:
        below = parents.get(todo.pop(), [])
        found += below
        todo += below
    return found


def kill_all() -> None:
    """Until nothing is left: a process may start another while we look."""
    while True:
        for pid in descendants():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0] != 0:
                pass
        except ChildProcessError:
            return
        time.sleep(0.01)


def start_rank(peer: Any, spec: Spec, rank: int) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid != 0:
        return pid
    code = 1
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        log = os.open(spec.folder / f"rank-{spec.launch}-{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        run(peer, spec, rank)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        end_quietly()
        with contextlib.suppress(BaseException):
            gc.collect()
            atexit._run_exitfuncs()
        os._exit(code)


def files_in_shm() -> set[Path]:
    return {path for path in Path("/dev/shm").iterdir() if _PEERS_SHM.fullmatch(path.name)}


def sweep(before: set[Path]) -> int:
    """Removes what a trial's kills left in /dev/shm, and says how many files that were. Another job may have made
    some: what any process maps is left alone."""
    mapped: set[str] = set()
    for entry in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            mapped.update(re.findall(r"/dev/shm/\S+", Path("/proc", entry, "maps").read_text()))
    left = [path for path in files_in_shm() - before if str(path) not in mapped]
    for path in left:
        path.unlink(missing_ok=True)
    return len(left)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def launch(peer: Any, spec: Spec) -> bool:
    """Until all ranks have ended (False), or stand at the step of the kill and are dead (True). Raises Ended."""
    ranks = {start_rank(peer, spec, rank): rank for rank in range(spec.world)}
    moved, sizes = time.monotonic(), -1
    try:
        while ranks:
            time.sleep(0.02)
            for pid in list(ranks):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended != 0:
                    rank = ranks.pop(pid)
                    fault = spec.folder / f"failed-{spec.launch}-{rank}.json"
                    if fault.exists():
                        told = json.loads(fault.read_text())
                        refused = told["stage"] == "load" and spec.resume is not None
                        raise Ended("refused" if refused else "error", told["text"])
                    # Killed by the alarm: all its work is done, only its end hung.
                    if status != 0 and os.waitstatus_to_exitcode(status) != -signal.SIGALRM:
                        raise Ended("error", f"rank {rank} ended with {os.waitstatus_to_exitcode(status)}")
            if spec.kill_at is not None:
                standing = [rank for rank in range(spec.world) if (spec.folder / f"at-{spec.launch}-{rank}").exists()]
                # A rank whose epoch ended before (its loader lost samples at an earlier resume) is not waited for.
                if standing and len(standing) == len(ranks):
                    return True
            now = sum(path.stat().st_size for path in spec.folder.glob(f"ids-{spec.launch}-*.bin"))
            if now != sizes:
                moved, sizes = time.monotonic(), now
            elif time.monotonic() - moved > STILL_SECONDS:
                raise Ended("hang", f"no batch for {STILL_SECONDS:.0f} s")
        return False
    finally:
        kill_all()


def newest(folder: Path, number: int, world: int, kill_at: int) -> tuple[int, int]:
    """Step and epoch of the last state that every rank saved before the kill."""
    for step in range(kill_at // SAVE_EVERY * SAVE_EVERY, 0, -SAVE_EVERY):
        files = [state_file(folder, number, rank, step) for rank in range(world)]
        if all(file.exists() for file in files):
            return step, int(files[0].with_suffix(".epoch").read_text())
    raise RuntimeError(f"no state before step {kill_at} in {folder}")


def trial(
    peer: Any, scenario: Scenario, args: argparse.Namespace, number: int, whole: dict[int, Steps]
) -> dict[str, Any]:
    """`whole`: the ids of each step of the unbroken run, by epoch; filled by it."""
    chance = random.Random(f"{args.seed}:{scenario.name}:{number}")
    folder = args.scratch / f"{scenario.name}-{number}"
    folder.mkdir(parents=True)
    kills = [int((scenario.epoch + chance.uniform(*part)) * STEPS) for part in scenario.kills]
    if scenario.saved:
        kills = [chance.choice(scenario.saved) + chance.randrange(1, SAVE_EVERY)]
    launches: list[Launch] = []
    resume = None
    result: dict[str, Any] = {"scenario": scenario.name, "kills": kills, "from": []}
    epochs = 2 if not kills else scenario.epoch + 1
    try:
        for index, kill_at in enumerate([*kills, None]):
            world, batch = scenario.shapes[min(index, len(scenario.shapes) - 1)]
            step = 0 if resume is None else resume[2]
            launches.append(Launch(index, world, batch, step))
            spec = Spec(
                folder=folder,
                data=args.data,
                launch=index,
                world=world,
                batch=batch,
                workers=args.workers,
                seed=args.seed,
                epochs=epochs,
                save_every=SAVE_EVERY,
                kill_at=kill_at,
                resume=resume,
                port=free_port(),
            )
            if not launch(peer, spec):
                break  # the epoch is over, sooner than the kill
            saved, epoch = newest(folder, index, world, spec.kill_at)
            resume = (index, world, saved, epoch)
            result["from"].append(saved)
    except Ended as ended:
        result |= {"outcome": ended.args[0], "message": ended.args[1][:2000]}
        if not args.keep:
            shutil.rmtree(folder)
        return result
    if not kills:
        whole.update({epoch: count(folder, launches, epoch, SAMPLES).steps for epoch in (0, 1)})
    counted = count(folder, launches, scenario.epoch, SAMPLES)
    same = None if scenario.name == "shrunk" else counted.steps == whole.get(scenario.epoch)
    result |= {"outcome": "ran", "lost": counted.lost, "repeated": counted.repeated}
    result |= {"even": counted.even, "sameOrder": same}
    if not kills:
        result["shuffled"] = counted.steps != whole[1] and counted.steps[1] != list(range(GLOBAL))
    if not args.keep:
        shutil.rmtree(folder)
    return result


def main() -> None:
    parser = argparse.ArgumentParser()
    add = parser.add_argument
    add("peer")
    add("--workers", type=int, default=0)
    add("--data", type=Path, required=True)
    add("--scratch", type=Path, required=True)
    add("--kills", type=int, default=3)
    add("--seed", type=int, default=1)
    add("--scenarios", default=",".join(scenario.name for scenario in SCENARIOS))
    add("--keep", action="store_true")
    args = parser.parse_args()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0 or libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    signal.signal(signal.SIGTERM, lambda number, _frame: (kill_all(), os._exit(128 + number)))
    peer = importlib.import_module(f"peers.{args.peer}")
    whole: dict[int, Steps] = {}
    wanted = args.scenarios.split(",")
    for scenario in SCENARIOS:
        if scenario.name in wanted:
            for number in range(1 if scenario.name == "unbroken" else args.kills):
                before = files_in_shm()
                one = trial(peer, scenario, args, number, whole)
                print(json.dumps({**one, "leftInShm": sweep(before)}), flush=True)


if __name__ == "__main__":
    main()
