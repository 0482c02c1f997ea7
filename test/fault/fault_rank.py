"""A numpy-only rank for the tests of faults, told what to do line by line (see `node_rig.Rank`).

    python fault_rank.py '{"source": …, options of the Loader}'

First it says `{"ready": pid}`. Each line on stdin is a command, each answer one line: `next` → {"ids": […]} or
{"end": true}; `stats`, `state`, `load` (a state behind it), `close`. An AthanorError is {"error": code, "text": …}.
ATHANOR_TEST_UID: it becomes that user once everything is imported, because a test's Python may lie where that one may
not read. ATHANOR_TEST_CLOCK: seconds by which its clock leaps with each look.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from typing import Any

import athanor
import athanor._sweep
from athanor.numpy import Loader


def leaping(by: float) -> None:
    """Wall-clock time that leaps forth and back."""
    real, sign = time.time, [1.0]

    def leap() -> float:
        sign[0] = -sign[0]
        return real() + sign[0] * by

    time.time = leap
    time.time_ns = lambda: int(leap() * 1e9)


def become(user: int) -> None:
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    os.environ["HOME"] = "/"


def answer(loader: Loader, steps: list[Any], words: list[str]) -> dict[str, Any]:
    if words[0] == "next":
        if not steps:
            steps.append(iter(loader))
        batch = next(steps[0], None)
        if batch is None:
            steps.clear()
            return {"end": True}
        return {"ids": [int(i) for i in batch["id"]]}
    if words[0] == "stats":
        return loader.stats()
    if words[0] == "state":
        return loader.state_dict()
    if words[0] == "load":
        loader.load_state_dict(json.loads(words[1]))
        steps.clear()
        return {}
    loader.close()
    return {}


def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    options = json.loads(sys.argv[1])
    if "ATHANOR_TEST_CLOCK" in os.environ:
        leaping(float(os.environ["ATHANOR_TEST_CLOCK"]))
    if "ATHANOR_TEST_UID" in os.environ:
        become(int(os.environ["ATHANOR_TEST_UID"]))
    loader = Loader(options.pop("source"), columns=["id"], **options)
    steps: list[Any] = []
    print(json.dumps({"ready": os.getpid()}), flush=True)
    for line in sys.stdin:
        try:
            told = answer(loader, steps, line.strip().split(" ", 1))
        except athanor.AthanorError as error:
            told = {"error": error.code, "text": str(error), "file": error.file}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
