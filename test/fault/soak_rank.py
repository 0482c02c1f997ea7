"""One rank of the soak, and its visitors: everything that a long job opens and closes, again and again, at little CPU.

A rank trains in epochs; beside it a new evaluation loader every EVAL_EVERY steps, and every REOPEN_EVERY steps its own
loader is closed and opened again from the state, which has been through JSON. It checks what it is given: the ids of
its batches of each epoch go to `ids-RANK.jsonl` (a line an epoch, so that the parent sees lost and repeated ones).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from athanor.numpy import Loader
from chaos_rank import KNOWN, MAX_LENGTH, append, check_rows

EVAL_EVERY = 40
REOPEN_EVERY = 150
WARM = 10  # as many times faster it goes until the agent has warmed up
TIMEOUT = 60.0


def start(folder: Path, log: str, environment: dict[str, str], work: Any) -> int:
    """Pid of a fork that does `work()`. It never returns from here."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid != 0:
        return pid
    code = 1
    try:
        os.environ.update(environment)
        descriptor = append(folder / log)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.close(descriptor)
        work()
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def train(folder: Path, data: Path, evaluation: Path, rank: int, world: int, batch_size: int, pace: float) -> None:
    """Until SIGTERM; an epoch that is under way then is not written. SIGUSR1: the agent is warm, on at `pace`."""
    stop: list[int] = []
    warm: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: stop.append(number))
    signal.signal(signal.SIGUSR1, lambda number, _frame: warm.append(number))
    common: dict[str, Any] = {"rank": rank, "world_size": world, "timeout": TIMEOUT}
    options = {**common, "batch_size": batch_size, "max_length": MAX_LENGTH, "seed": 11, "lanes": 4, "window": 64}
    options["columns"] = ["id", "input_ids", "attention_mask"]

    def opened(state: dict[str, Any] | None) -> Any:
        return Loader(data, proof_dir=folder / "proof", state=state, **options)

    loader = opened(None)
    lines = append(folder / f"ids-{rank}.jsonl")
    step = 0
    while True:
        epoch, ids = loader.epoch, []
        ended = False
        while not ended:
            ended = True
            for batch in loader:
                check_rows(batch, KNOWN)
                ids += batch["id"].tolist()
                step += 1
                if stop:
                    loader.close()
                    return
                time.sleep(pace if warm else pace / WARM)
                if step % EVAL_EVERY == 0:
                    evaluate(evaluation, common)
                if step % REOPEN_EVERY == 0 and loader.epoch == epoch:
                    state = json.loads(json.dumps(loader.state_dict()))
                    loader.close()
                    loader = opened(state)
                    ended = loader.epoch != epoch
                    break
        os.write(lines, json.dumps({"epoch": epoch, "ids": ids}).encode() + b"\n")


def evaluate(evaluation: Path, common: dict[str, Any]) -> None:
    with Loader(evaluation, batch_size=1, columns=["id"], last="pad", shuffle="none", **common) as loader:
        numbers = [int(batch["id"][0]) for batch in loader if batch["valid"][0]]
    if len(numbers) != len(set(numbers)):
        raise RuntimeError(f"an evaluation gave {numbers}")


def churn(data: Path, sessions: int) -> None:
    """As many sessions, one after the other, as fast as they come."""
    for number in range(sessions):
        with Loader(data, batch_size=5, columns=["id"], seed=number, rank=0, world_size=1, timeout=TIMEOUT) as loader:
            next(iter(loader))


def visit(data: Path, seed: int, batches: int) -> None:
    """Another loader of the same job for a moment; with an odd `seed` it ends by SIGKILL in the middle."""
    loader = Loader(data, batch_size=5, columns=["id"], seed=seed, rank=0, world_size=1, timeout=TIMEOUT)
    taken = loader.repeat()
    for _ in range(batches):
        np.asarray(next(taken)["id"])
    if seed % 2 == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    loader.close()
