"""One source, pass after pass: which sample is row r of lane l of pass e (docs/reference/order.md, "Positions").

Pure: nothing here reads a file.

>>> passes = Passes([60, 40], How("window", lanes=2, window=8, extent=1), seed=7, source=0)
>>> passes.sample(epoch=0, lane=1, row=3)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .chance import EXTENTS, I64, WINDOW, feistel, permutation
from .resolve import How

# File order needs no windows; samples are read this many at a time.
_FILE_ORDER_ROWS = 1024
_KEPT_PASSES = 3
_KEPT_ROWS = 4 << 20  # of windows' permutations, 8 bytes each


class Window(NamedTuple):
    """Samples that are shuffled together (`none`: read together; `global`: all of them)."""

    epoch: int
    lane: int
    number: int


def lane_samples(samples: int, lanes: int, lane: int) -> int:
    """R: samples of a lane in each pass."""
    return samples // lanes + (lane < samples % lanes)


class Passes:
    """`extents`: sample counts in file order. `source`: its number, a field of every random choice."""

    def __init__(self, extents: Sequence[int] | I64, how: How, seed: int, source: int) -> None:
        self.how = how
        self._seed = seed
        self._source = source
        self._starts = _sums(np.asarray(extents, np.int64))
        self.samples = int(self._starts[-1])
        self._unit = {"window": how.window, "none": _FILE_ORDER_ROWS, "global": self.samples}[how.shuffle]
        self._layouts: dict[int, tuple[I64, I64]] = {}
        self._perms: dict[Window, I64] = {}
        self._kept_rows = 0

    def place(self, epoch: int, lane: int, row: int) -> tuple[Window, int]:
        """The window of a row, and which of the window's samples (in the order of `pieces`) it is."""
        if self.how.shuffle == "global":
            return Window(0, 0, 0), int(feistel(self._seed, self._source, epoch, self.samples, np.array([row]))[0])
        number, inside = divmod(row, self._unit)
        if self.how.shuffle == "none":
            return Window(0, 0, number), inside
        window = Window(epoch, lane, number)
        return window, int(self._permutation(window)[inside])

    def sample(self, epoch: int, lane: int, row: int) -> int:
        """Its number in file order."""
        window, item = self.place(epoch, lane, row)
        for first, count in self.pieces(window):
            if item < count:
                return first + item
            item -= count
        raise IndexError(f"row must lie in its lane, got {row}")

    def pieces(self, window: Window) -> list[tuple[int, int]]:
        """The window's samples before they are shuffled, as runs (first in file order, how many)."""
        first = self._lane_start(window.lane) + window.number * self._unit
        stop = min(first + self._unit, self._lane_start(window.lane + 1))
        if self.how.shuffle != "window":
            return [(first, stop - first)]
        permuted, laid = self._layout(window.epoch)
        found = []
        at = first
        rank = int(np.searchsorted(laid, first, "right")) - 1
        while at < stop:
            count = min(int(laid[rank + 1]), stop) - at
            if count > 0:
                found.append((int(self._starts[permuted[rank]]) + at - int(laid[rank]), count))
                at += count
            rank += 1
        return found

    def _lane_start(self, lane: int) -> int:
        each, more = divmod(self.samples, self.how.lanes)
        return lane * each + min(lane, more)

    def _layout(self, epoch: int) -> tuple[I64, I64]:
        """Extents of a pass in their order, and the first laid sample of each."""
        found = self._layouts.get(epoch)
        if found is None:
            permuted = permutation((self._seed, EXTENTS, self._source, epoch, 0, 0), len(self._starts) - 1)
            found = self._layouts[epoch] = permuted, _sums(np.diff(self._starts)[permuted])
            while len(self._layouts) > _KEPT_PASSES:
                del self._layouts[next(iter(self._layouts))]
        return found

    def _permutation(self, window: Window) -> I64:
        found = self._perms.get(window)
        if found is None:
            start = self._lane_start(window.lane) + window.number * self._unit
            rows = min(self._unit, self._lane_start(window.lane + 1) - start)
            found = permutation((self._seed, WINDOW, self._source, *window), rows)
            self._perms[window] = found
            self._kept_rows += rows
            while self._kept_rows > _KEPT_ROWS and len(self._perms) > 1:
                self._kept_rows -= len(self._perms.pop(next(iter(self._perms))))
        return found


def _sums(counts: I64) -> I64:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])
