"""The order in plain Python, as docs/reference/order.md says it: which sample is served at which position.

Pure: nothing here reads a file or knows of ranks, nodes or memory. `src/order/` is the same in TypeScript; the vectors
of test/fixtures/order-v1.json hold both.

>>> resolved = resolve(Totals(samples=100, bytes=10_000, blocks=1, largest_block=100, row_bytes=4096), seed=7,
...                    global_batch=8)
>>> order = Order([100], resolved)
>>> order.locate(17).sample, order.deal(0, 8, world=2, rank=1).positions
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .._epochs import Epochs
from ..errors import error
from .chance import EXTENTS, I64, WINDOW, feistel, permutation

GIB = 1 << 30
_MAX_LANES = 64
_MAX_EXTENT_BYTES = 256 << 20
_RUN_BLOCKS = 64  # larger extents are whole runs of so many blocks
# File order needs no windows; samples are read this many at a time.
_FILE_ORDER_ROWS = 1024
_KEPT_PASSES = 3
_KEPT_ROWS = 4 << 20  # of windows' permutations, 8 bytes each


@dataclass(frozen=True)
class Totals:
    """What of a view decides the order's numbers. `row_bytes`: nominal, width × 4 of each delivered column."""

    samples: int
    bytes: int
    blocks: int
    largest_block: int
    row_bytes: int
    streams: bool = False


@dataclass(frozen=True)
class Resolved:
    """What a state holds of an order. `extent`: blocks, 0 = whole shards. `start`: position where it begins."""

    seed: int
    shuffle: str
    held: bool
    lanes: int
    window: int
    extent: int
    last: str
    global_batch: int
    start: int


def is_held(totals: Totals, shuffle_memory: int) -> bool:
    return totals.samples * totals.row_bytes <= shuffle_memory


def refuse_streams(totals: Totals, shuffle: str, held: bool) -> None:
    if shuffle == "global" and not held and totals.streams:
        raise error(
            "ATH_ORDER_STREAM",
            'shuffle="global" cannot read gzip or zlib shards at random, and the view does not fit shuffle_memory: '
            f"{totals.samples} samples × {totals.row_bytes} bytes",
            remedy='use shuffle="window", more shuffle_memory, or uncompressed shards',
        )


def resolve(
    totals: Totals,
    *,
    seed: int,
    global_batch: int,
    shuffle: str = "window",
    shuffle_memory: int = GIB,
    lanes: int | None = None,
    window: int | None = None,
    unit: str = "extent",
    last: str = "carry",
    start: int = 0,
) -> Resolved:
    """From options to numbers. Raises ATH_ORDER_OPTION, and ATH_ORDER_STREAM for streams too large for `global`."""
    if totals.samples < 1:
        raise error("ATH_ORDER_OPTION", "the data has no samples", remedy="look with `athanor inspect`")
    free = lanes is None and window is None
    held = is_held(totals, shuffle_memory) and (shuffle == "global" or (shuffle == "window" and free))
    if held:
        shuffle = "global"
    refuse_streams(totals, shuffle, held)
    if shuffle != "window" and not free:
        raise error("ATH_ORDER_OPTION", f'lanes and window belong to shuffle="window", found shuffle="{shuffle}"')
    if shuffle != "window":
        lanes = 1
    elif lanes is None:
        most = max(1, min(_MAX_LANES, totals.blocks // 4))
        lanes = 1 << (most.bit_length() - 1)
    mean = max(totals.bytes / max(totals.blocks, 1), 1)
    extent = math.floor(min(totals.bytes / (16 * lanes), _MAX_EXTENT_BYTES) / mean + 0.5)
    extent = extent // _RUN_BLOCKS * _RUN_BLOCKS if extent >= _RUN_BLOCKS else max(extent, 1)
    if shuffle == "global":
        window = totals.samples
    elif shuffle == "none":
        window = 1
    elif window is None:
        window = max(shuffle_memory // (lanes * max(totals.row_bytes, 1)), totals.largest_block, 1)
    return Resolved(
        seed, shuffle, held, lanes, window, 0 if unit == "shard" else extent, last, global_batch, start
    )  # fmt: skip


class Window(NamedTuple):
    """Samples that are shuffled together (`none`: read together; `global`: all of them)."""

    epoch: int
    lane: int
    number: int


class Located(NamedTuple):
    """`epoch`: the pass over the data. `sample`: number in file order."""

    epoch: int
    lane: int
    row: int
    sample: int


class Dealt(NamedTuple):
    """Positions of one rank in a step; those from `valid` on repeat another and count for nothing."""

    positions: I64
    valid: int


class Order:
    """The endless sequence over `extents` (sample counts in file order). `source`: a field of every random choice."""

    def __init__(self, extents: Sequence[int] | I64, resolved: Resolved, source: int = 0) -> None:
        self.resolved = resolved
        self.lanes = resolved.lanes
        self._source = source
        self._starts = _sums(np.asarray(extents, np.int64))
        self.samples = int(self._starts[-1])
        g = resolved.global_batch
        self.epochs = Epochs.of_one(self.samples, g, g, resolved.last, resolved.start)
        self._unit = {"window": resolved.window, "none": _FILE_ORDER_ROWS, "global": self.samples}[resolved.shuffle]
        self._layouts: dict[int, tuple[I64, I64]] = {}
        self._perms: dict[Window, I64] = {}
        self._kept_rows = 0

    # -- positions

    def split(self, position: int) -> tuple[int, int]:
        """(pass, place in the pass)."""
        return divmod(position - self.resolved.start, self.epochs.spans[0].length)

    def place(self, position: int) -> tuple[Window, int]:
        """The window of a position, and which of the window's samples (in the order of `pieces`) it is."""
        epoch, place = self.split(position)
        row, lane = divmod(place, self.lanes)
        if self.resolved.shuffle == "global":
            item = feistel(self.resolved.seed, self._source, epoch, self.samples, np.array([row]))
            return Window(0, 0, 0), int(item[0])
        number, item_row = divmod(row, self._unit)
        if self.resolved.shuffle == "none":
            return Window(0, 0, number), item_row
        window = Window(epoch, lane, number)
        return window, int(self._permutation(window)[item_row])

    def locate(self, position: int) -> Located:
        epoch, place = self.split(position)
        window, item = self.place(position)
        row, lane = divmod(place, self.lanes)
        for first, count in self.pieces(window):
            if item < count:
                return Located(epoch, lane, row, first + item)
            item -= count
        raise IndexError(f"position must lie in the order, got {position}")

    def deal(self, start: int, step: int, world: int, rank: int) -> Dealt:
        """What `rank` gets of the step at `start`: sorted by (lane, position), cut into equal runs."""
        end = start + step
        if self.resolved.last == "pad":
            end = min(end, self.epochs.begin(self.epochs.epoch_of(start) + 1))
        positions = np.arange(start, end, dtype=np.int64)
        lanes = (positions - self.resolved.start) % self.epochs.spans[0].length % self.lanes
        positions = positions[np.argsort(lanes, kind="stable")]
        n, batch = len(positions), step // world
        first, stop = rank * n // world, (rank + 1) * n // world
        run = positions[first:stop] if stop > first else positions[first : first + 1]
        filled = np.concatenate([run, np.repeat(run[-1:], batch - len(run))])
        return Dealt(filled, stop - first)

    # -- samples

    def pieces(self, window: Window) -> list[tuple[int, int]]:
        """The window's samples before they are shuffled, as runs (first in file order, how many)."""
        first = self._lane_start(window.lane) + window.number * self._unit
        stop = min(first + self._unit, self._lane_start(window.lane + 1))
        if self.resolved.shuffle != "window":
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
        each, more = divmod(self.samples, self.lanes)
        return lane * each + min(lane, more)

    def _layout(self, epoch: int) -> tuple[I64, I64]:
        """Extents of a pass in their order, and the first laid sample of each."""
        found = self._layouts.get(epoch)
        if found is None:
            permuted = permutation((self.resolved.seed, EXTENTS, self._source, epoch, 0, 0), len(self._starts) - 1)
            found = self._layouts[epoch] = permuted, _sums(np.diff(self._starts)[permuted])
            while len(self._layouts) > _KEPT_PASSES:
                del self._layouts[next(iter(self._layouts))]
        return found

    def _permutation(self, window: Window) -> I64:
        found = self._perms.get(window)
        if found is None:
            start = self._lane_start(window.lane) + window.number * self._unit
            rows = min(self._unit, self._lane_start(window.lane + 1) - start)
            found = permutation((self.resolved.seed, WINDOW, self._source, *window), rows)
            self._perms[window] = found
            self._kept_rows += rows
            while self._kept_rows > _KEPT_ROWS and len(self._perms) > 1:
                self._kept_rows -= len(self._perms.pop(next(iter(self._perms))))
        return found


def _sums(counts: I64) -> I64:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])
