"""A view: index, columns and order of one source, and its samples. Everything that `Loader(agent="none")` stands on.

>>> what = {"source": "/data", "index_dir": None, "columns": None, "max_length": 512, "pad_id": 0, "strict": False}
>>> view = View(what, {"seed": "7", "global_batch": 64})
>>> view.rows(view.order.deal(0, 64, world=2, rank=1).positions).ids
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from .._state import State
from .chance import I64, U64
from .columns import Array, Column, Rows, columns_of
from .cut import cut_index, sample_rule
from .index import extents, stored_index, view_fingerprint
from .order import Order, Totals, Window
from .samples import Samples
from .scan import scan_all
from .state import order_of, state_of

SOURCE_NAME = "data"


class View:
    """`view`, `order`: the fields of the protocol's hello. `state`: goes on with its order at its position."""

    def __init__(
        self,
        view: dict[str, Any],
        order: dict[str, Any],
        state: State | None = None,
        override: bool = False,
        quarantine: dict[str, Any] | None = None,
    ) -> None:
        found, index = stored_index(view["source"], view["index_dir"])
        keep = quarantine is not None and quarantine["on_corrupt"] == "replace"
        records = scan_all(found, view["source"], keep) if index is None else index
        rule = sample_rule(records, view.get("sample_rule"))
        self.index, cuts = cut_index(records, rule, view["max_length"])
        self.columns = columns_of(self.index.fields, view, self.index.root)
        self.fingerprint = view_fingerprint(
            self.index.fingerprint, [column.name for column in self.columns], view["max_length"], rule
        )
        resolved, self.position = order_of(self.totals, self.fingerprint, order, state, override)
        self.order = Order(extents(self.index, resolved.extent), resolved)
        self._samples = Samples(SOURCE_NAME, self.index, cuts, self.columns, view["strict"], quarantine)
        self._windows: dict[int, dict[Window, Rows]] = {}  # by lane

    @cached_property
    def totals(self) -> Totals:
        shards = self.index.shards
        return Totals(
            samples=self.index.records,
            bytes=self.index.bytes,
            blocks=sum(1 if shard.is_stream and shard.records > 0 else shard.blocks for shard in shards),
            largest_block=max(shard.largest_block for shard in shards),
            row_bytes=sum(column.width * 4 for column in self.columns),
            streams=any(shard.is_stream and shard.records > 0 for shard in shards),
        )

    def state(self, position: int) -> State:
        return state_of(self.order.resolved, position, SOURCE_NAME, self.fingerprint, self.order.samples)

    def rows(self, positions: I64) -> Gathered:
        """The samples at `positions`, in this order. A window is decoded once and kept until its lane has left it."""
        places = [self.order.place(position) for position in positions.tolist()]
        if self.order.resolved.shuffle == "global" and not self.totals.streams:
            # Held or not: each row is wanted once an epoch, and a rank wants a few of them.
            found = self.samples(np.array([item for _, item in places], np.int64))
            found.ids[:, 0] = positions
            return found
        gathered = Gathered(self.columns, len(places))
        touched: dict[int, dict[Window, Rows]] = {}
        for row, (window, item) in enumerate(places):
            rows = touched.setdefault(window.lane, {}).get(window)
            if rows is None:
                rows = self._windows.get(window.lane, {}).get(window)
                if rows is None:
                    rows = self._samples.read(self.order.pieces(window))
                touched[window.lane][window] = rows
            gathered.take(row, rows, item)
        self._windows.update(touched)
        gathered.ids[:, 0] = positions
        return gathered

    def samples(self, numbers: I64) -> Gathered:
        """Samples by number in file order, each a small read of its own."""
        gathered = Gathered(self.columns, len(numbers))
        for row, number in enumerate(numbers.tolist()):
            gathered.take(row, self._samples.read([(number, 1)]), 0)
        return gathered

    def close(self) -> None:
        self._windows.clear()
        self._samples.close()


class Gathered:
    """Rows of a batch. `ids`: {position, shard key, record, token | valid << 32} a row."""

    def __init__(self, columns: list[Column], count: int) -> None:
        self.columns = columns
        self.stored: list[Array] = [column.empty(count) for column in columns]
        self.ids: U64 = np.zeros((count, 4), np.uint64)
        self.truncated = np.zeros(count, bool)
        self.replaced = np.zeros(count, bool)

    def take(self, row: int, rows: Rows, item: int) -> None:
        for target, source in zip(self.stored, rows.stored):
            target[row] = source[item]
        self.ids[row] = rows.ids[item]
        self.truncated[row] = rows.truncated[item]
        self.replaced[row] = rows.replaced[item]

    def padded(self, positions: I64) -> Gathered:
        """As many rows as `positions`: the last one repeated; zeros if there is none."""
        have = len(self.ids)
        if have == len(positions):
            return self
        filled = Gathered(self.columns, len(positions))
        if have > 0:
            rows = np.minimum(np.arange(len(positions)), have - 1)
            filled.stored = [stored[rows] for stored in self.stored]
            filled.ids, filled.truncated, filled.replaced = self.ids[rows], self.truncated[rows], self.replaced[rows]
        filled.ids[:, 0] = positions
        return filled
