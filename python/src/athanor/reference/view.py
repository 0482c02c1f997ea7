"""A view: the sources of a run, their order, and its samples. Everything that `Loader(agent="none")` stands on.

>>> what = {"source": "/data", "index_dir": None, "columns": None, "max_length": 512, "pad_id": 0, "strict": False}
>>> view = View(what, {"seed": "7", "global_batch": 64})
>>> view.rows(view.order.deal(0, 64, world=2, rank=1).positions).ids
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._columns import Factory
from .._slices import Slices
from .._state import State
from ..errors import AthanorError, error
from .chance import I64, U64
from .columns import Array, Rows
from .mixture import PERIOD
from .order import Order
from .passes import Window
from .plan import Job
from .resolve import Options, is_held, share
from .source import Source, open_index, shared_columns
from .state import go_on, state_of

SOURCE_NAME = "data"


class View:
    """`view`, `order`, `mix`, `quarantine`: fields of the protocol's hello. `state`: goes on with its run at its
    position."""

    def __init__(
        self,
        view: dict[str, Any],
        order: dict[str, Any],
        state: State | None = None,
        override: bool = False,
        mix: dict[str, Any] | None = None,
        quarantine: dict[str, Any] | None = None,
    ) -> None:
        if mix is None:
            one = {"name": SOURCE_NAME, "path": view["source"], "index_dir": view["index_dir"]}
            mix = {"sources": [one], "by": "samples", "phases": [{"from": 0, "weights": [1.0]}]}
        indexes = {part["name"]: open_index(part["path"], part["index_dir"], quarantine) for part in mix["sources"]}
        own = ("valid",) if order.get("last") == "pad" else ()
        self.columns = shared_columns(indexes, view, own)
        self._named = {name: Source(name, index, self.columns, view, quarantine) for name, index in indexes.items()}
        asked = {name: order[name] for name in ("shuffle", "shuffle_memory", "lanes", "window", "unit")
                 if order.get(name) is not None}  # fmt: skip
        self._options = Options(**asked)
        job = Job(
            seed=int(order["seed"]),
            views={name: (source.fingerprint, source.totals) for name, source in self._named.items()},
            phases=[(phase["from"], phase["weights"]) for phase in mix["phases"]],
            ramp=[(start, size) for start, size in order.get("ramp") or [(0, order["global_batch"])]],
            by=mix["by"],
            last=order.get("last", "carry"),
            options=self._options,
            max_length=view["max_length"],
            past={name: list(source.past) for name, source in self._named.items()},
        )
        self.run, self.position = go_on(job, state, override)
        self.order = Order(self.run, self._extents)
        self._gone = [number for number in range(len(self.run.sources)) if self._set(number) is None]
        self._reached = self.position
        for number in self._gone:
            if self.order.serves(number, self.position):
                raise self._missing(number)
        self._windows: dict[tuple[int, int], dict[Window, Rows]] = {}  # by source and its lane

    def source(self, number: int) -> Source:
        """Raises ATH_ORDER_POSITION for one that this job has no more."""
        found = self._set(number)
        if found is None:
            raise self._behind(number, self.position)
        return found

    def reach(self, position: int) -> None:
        """Refuses to go back to where sources were due that this job has no more: ATH_ORDER_POSITION."""
        if position >= self._reached:
            return
        for number in self._gone:
            if self.order.serves(number, position):
                raise self._behind(number, position)
        self._reached = position

    def data_of(self, number: int) -> str | None:
        """Fingerprint of the data that a source of the run is of; None: not in this job any more."""
        source = self._set(number)
        return None if source is None else source.index.fingerprint

    def held(self, number: int) -> bool:
        source, joined = self._set(number), self.run.sources[number]
        return source is not None and is_held(source.totals, joined.how, share(self._options, self._weight(number)))

    def state(self, position: int) -> State:
        return state_of(self.run, position)

    def rows(self, positions: I64) -> Gathered:
        """The samples at `positions`, in this order. A window is decoded once and kept until its lane has left it."""
        gathered = Gathered(positions)
        touched: dict[tuple[int, int], dict[Window, Rows]] = {}
        for position in positions.tolist():
            number, window, item = self.order.place(position)
            source = self.source(number)
            if self.run.sources[number].how.shuffle == "global" and not source.totals.streams:
                # Held or not: each row is wanted once an epoch, and a rank wants a few of them.
                gathered.take(number, source.read([(item, 1)]), 0)
                continue
            lane = number, window.lane
            rows = touched.setdefault(lane, {}).get(window)
            if rows is None:
                rows = self._windows.get(lane, {}).get(window)
                if rows is None:
                    rows = source.read(self.order.passes(number).pieces(window))
                touched[lane][window] = rows
            gathered.take(number, rows, item)
        self._windows.update(touched)
        return gathered

    def samples(self, numbers: I64) -> Gathered:
        """Samples of the first source by number in file order, each a small read of its own."""
        gathered = Gathered(np.zeros(len(numbers), np.int64))
        for number in numbers.tolist():
            gathered.take(0, self.source(0).read([(number, 1)]), 0)
        return gathered

    def deliver(self, gathered: Gathered, factory: Factory, slices: Slices) -> dict[str, Any]:
        """Columns in the user's memory."""
        batch: dict[str, Any] = {}
        for column in self.columns:
            given, target = column.memory(factory, len(gathered.ids), slices)
            gathered.deliver(column.name, target, slices)
            batch[column.name] = given
        return batch

    def close(self) -> None:
        self._windows.clear()
        for source in self._named.values():
            source.close()

    def _set(self, number: int) -> Source | None:
        """The set that a source of the run is of; None: not in this job, or forgotten by its index."""
        joined = self.run.sources[number]
        newest = self._named.get(joined.name)
        if newest is None or newest.fingerprint == joined.view:
            return newest
        return newest.past.get(joined.view)

    def _missing(self, number: int) -> AthanorError:
        name, position = self.run.sources[number].name, self.position
        if name not in self._named:
            return error(
                "ATH_STATE_MISMATCH",
                f"the state goes on with source {name} from position {position}, and this job has no source of that "
                "name",
                remedy="keep it in the mix, with weight 0 if no more is wanted of it; it may go once the state is past "
                "its last sample",
            )
        return error(
            "ATH_STATE_MISMATCH",
            f"the state goes on with source {name} as it was before shards were appended, from position {position}, "
            "and its index does not know that set",
            remedy="give the index that was there when the state was taken, or begin without the state",
        )

    @staticmethod
    def _behind(number: int, position: int) -> AthanorError:
        return error(
            "ATH_ORDER_POSITION",
            f"position {position} lies before the end of source {number} of the order, which this job does not name "
            "any more",
            remedy="go on from a later position, or name that source in the mix with weight 0",
        )

    def _extents(self, number: int) -> list[int]:
        return self.source(number).extents(self.run.sources[number].how.extent)

    def _weight(self, number: int) -> int:
        """The weight with which a source joined."""
        for segment in self.run.segments:
            if number in segment.sources:
                return segment.weights[segment.sources.index(number)]
        return PERIOD


class Gathered:
    """Rows of a batch. `ids`: {position, shard key, record, token | valid << 32 | source << 33} a row."""

    def __init__(self, positions: I64) -> None:
        self.ids: U64 = np.zeros((len(positions), 4), np.uint64)
        self.ids[:, 0] = positions
        self.truncated = np.zeros(len(positions), bool)
        self.replaced = np.zeros(len(positions), bool)
        self._from: list[tuple[Rows, int]] = []

    def take(self, number: int, rows: Rows, item: int) -> None:
        """The next row is this one of source `number`."""
        row = len(self._from)
        self.ids[row, 1:] = rows.ids[item, 1:]
        self.ids[row, 3] |= np.uint64(number << 33)
        self.truncated[row] = rows.truncated[item]
        self.replaced[row] = rows.replaced[item]
        self._from.append((rows, item))

    def padded(self, positions: I64) -> Gathered:
        """As many rows as `positions`: the last one repeated; zeros if there is none."""
        filled = Gathered(positions)
        have = len(self._from)
        if have > 0:
            rows = np.minimum(np.arange(len(positions)), have - 1)
            filled.ids[:, 1:] = self.ids[rows, 1:]
            filled.truncated, filled.replaced = self.truncated[rows], self.replaced[rows]
            filled._from = [self._from[row] for row in rows.tolist()]
        return filled

    def deliver(self, name: str, target: Array, slices: Slices) -> None:
        """A column into the user's memory."""
        if not self._from:
            target[...] = 0
        together: dict[int, tuple[Rows, list[int], list[int]]] = {}
        for row, (rows, item) in enumerate(self._from):
            _, here, there = together.setdefault(id(rows), (rows, [], []))
            here.append(row)
            there.append(item)
        for rows, here, there in together.values():
            at = [column.name for column in rows.columns].index(name)
            rows.columns[at].deliver(rows.stored[at][there], target, np.array(here, np.int64), slices)
