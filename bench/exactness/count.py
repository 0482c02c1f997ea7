"""What a run delivered of one epoch: how many samples are lost, how many repeated, and whether the order was kept.

Ids come from the files that the ranks wrote. A launch counts up to the step of the state that the next one went on
from: what it did after that is what a real run throws away with its weights."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

Steps = dict[int, list[int]]  # step of the whole run → ids, sorted


class Launch(NamedTuple):
    """One start of all ranks."""

    number: int
    world: int
    batch: int  # of a rank
    step: int  # of the state that it went on from


class Counted(NamedTuple):
    lost: int
    repeated: int
    even: bool  # the ranks of the last launch gave equally many batches; if not, a collective hangs
    steps: Steps


def rank_file(folder: Path, launch: int, rank: int) -> Path:
    return folder / f"ids-{launch}-{rank}.bin"


def record(epoch: int, step: int, ids: list[int], batch: int) -> bytes:
    """A short batch is filled with -1."""
    return np.array([epoch, step, *ids, *[-1] * (batch - len(ids))], np.int64).tobytes()


def delivered(folder: Path, launches: list[Launch], epoch: int) -> tuple[Steps, bool]:
    steps: Steps = {}
    even = True
    for launch, following in zip(launches, [*launches[1:], None]):
        batches = []
        for rank in range(launch.world):
            data = np.fromfile(rank_file(folder, launch.number, rank), np.int64)
            width = 2 + launch.batch
            table = data[: len(data) // width * width].reshape(-1, width)
            batches.append(len(table))
            for at, step, *ids in table.tolist():
                if at == epoch and (following is None or step <= following.step):
                    steps.setdefault(step, []).extend(number for number in ids if number >= 0)
        if following is None:
            even = len(set(batches)) == 1
    return {step: sorted(ids) for step, ids in steps.items()}, even


def count(folder: Path, launches: list[Launch], epoch: int, samples: int) -> Counted:
    steps, even = delivered(folder, launches, epoch)
    times = Counter(number for ids in steps.values() for number in ids)
    lost = sum(times[number] == 0 for number in range(samples))
    repeated = sum(number - 1 for number in times.values() if number > 1)
    return Counted(lost, repeated, even, steps)
