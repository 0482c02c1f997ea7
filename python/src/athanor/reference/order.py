"""The order in plain Python, as docs/reference/order.md says it: which sample is served at which position.

Pure: nothing here reads a file or knows of ranks, nodes or memory. `src/order/` is the same in TypeScript; the vectors
of test/fixtures/order-v1.json hold both.

>>> how = resolve(Totals(samples=100, bytes=10_000, blocks=1, largest_block=100, row_bytes=4096), Options())
>>> order = Order(run_of_one("data", "", 100, how, seed=7, global_batch=8), lambda source: [100])
>>> order.locate(17).sample, order.deal(0, 8, world=2, rank=1).positions
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from .chance import I64
from .mixture import PERIOD
from .passes import Passes, Window
from .resolve import How
from .segments import Joined, Run, Segment
from .sequence import Rows


class Located(NamedTuple):
    """`source`: its number. `epoch`: the pass over it. `sample`: number in file order."""

    source: int
    epoch: int
    lane: int
    row: int
    sample: int


class Dealt(NamedTuple):
    """Positions of one rank in a step; those from `valid` on repeat another and count for nothing."""

    positions: I64
    valid: int


class Order:
    """The endless sequence of a run. `extents`: of a source by number, its sample counts in file order."""

    def __init__(self, run: Run, extents: Callable[[int], Sequence[int] | I64]) -> None:
        self.run = run
        self._rows = Rows(run)
        self.epochs = self._rows.epochs
        self._extents = extents
        self._passes: dict[int, Passes] = {}

    def passes(self, source: int) -> Passes:
        found = self._passes.get(source)
        if found is None:
            found = Passes(self._extents(source), self.run.sources[source].how, self.run.seed, source)
            self._passes[source] = found
        return found

    def place(self, position: int) -> tuple[int, Window, int]:
        """Source and window of a position, and which of the window's samples (in the order of `pieces`) it is."""
        source, *row = self._rows.row(position)
        return (source, *self.passes(source).place(*row))

    def serves(self, source: int, position: int) -> bool:
        """Is anything of a source served from a position on?"""
        return self._rows.serves(source, position)

    def locate(self, position: int) -> Located:
        source, *row = self._rows.row(position)
        epoch, lane, at = row
        return Located(source, epoch, lane, at, self.passes(source).sample(epoch, lane, at))

    def deal(self, start: int, step: int, world: int, rank: int) -> Dealt:
        """What `rank` gets of the step at `start`: sorted by (lane, position), cut into equal runs."""
        end = start + step
        if self.epochs.last == "pad":
            end = min(end, self.epochs.begin(self.epochs.epoch_of(start) + 1))
        positions = np.arange(start, end, dtype=np.int64)
        lanes = np.array([self._rows.lane(position) for position in positions.tolist()], np.int64)
        positions = positions[np.argsort(lanes, kind="stable")]
        n, batch = len(positions), step // world
        first, stop = rank * n // world, (rank + 1) * n // world
        run = positions[first:stop] if stop > first else positions[first : first + 1]
        filled = np.concatenate([run, np.repeat(run[-1:], batch - len(run))])
        return Dealt(filled, stop - first)


def run_of_one(
    name: str, view: str, samples: int, how: How, *, seed: int, global_batch: int, last: str = "carry", start: int = 0
) -> Run:
    """One source, one segment."""
    segment = Segment(start, (0,), (PERIOD,), how.lanes, last, global_batch)
    return Run(seed, (Joined(name, view, samples, how),), (segment,))
