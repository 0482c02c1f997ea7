"""A training process whose DataLoader worker meets a fault; prints what came of it as one line of JSON.

    python worker_fault.py SOURCE kill|term|pause|stop

A process of its own: torch raises wherever the main thread is when a worker dies.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from torch.utils.data import DataLoader

from athanor.numpy import Loader
from athanor.torch import AthanorDataset

BATCH = 4
COMMON: dict[str, Any] = {"batch_size": BATCH, "columns": ["id"], "seed": 2}


def ids(batch: Any) -> list[int]:
    return [int(i) for i in batch["id"]]


def text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def read(batches: Any, kind: str, told: dict[str, Any]) -> None:
    """Read to the end, with the fault behind the fifth batch."""
    for batch in batches:
        told["seen"].append(ids(batch))
        if len(told["seen"]) != 5:
            continue
        told["began"] = time.monotonic()
        worker = told["worker"]
        # From elsewhere: a worker that its own parent ends says 0.
        subprocess.run(["kill", {"kill": "-KILL", "term": "-TERM"}.get(kind, "-STOP"), str(worker)], check=True)
        if kind == "pause":
            threading.Timer(1, os.kill, (worker, signal.SIGCONT)).start()
        if kind == "stop":  # torch itself may wait for a batch that is on the way, whatever its timeout is
            break


def first_only(told: dict[str, Any]) -> None:
    """Let torch's handler of SIGCHLD raise only while no other error has been told: where that one is being told,
    the worker's second error would end this process."""
    torch: Any = signal.getsignal(signal.SIGCHLD)

    def handler(number: int, frame: Any) -> None:
        try:
            torch(number, frame)
        except RuntimeError as error:
            if "error" not in told:
                told["error"] = text(error)
                raise

    signal.signal(signal.SIGCHLD, handler)


def main() -> None:
    source, kind = sys.argv[1:]
    batches = iter(DataLoader(AthanorDataset(source, **COMMON), batch_size=None, num_workers=2, prefetch_factor=2))
    worker = batches._workers[1]
    told: dict[str, Any] = {"worker": worker.pid, "seen": [], "began": time.monotonic()}
    first_only(told)
    try:
        try:
            read(batches, kind, told)
            told.setdefault("error", None)
        except Exception as error:
            told.setdefault("error", text(error))
    except RuntimeError:  # raised by the handler between the two lines above: it has told it
        assert told["error"]
    told["seconds"] = time.monotonic() - told["began"]
    if kind == "stop":
        with Loader(source, **COMMON) as other:
            told["other"] = [ids(batch) for batch in other]
        os.kill(worker.pid, signal.SIGKILL)
    worker.join(20)
    told["exit"] = worker.exitcode
    print(json.dumps(told))


if __name__ == "__main__":
    main()
