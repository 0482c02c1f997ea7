"""A view: index, columns and order of one source, and its samples. Everything that `Loader(agent="none")` stands on.

>>> what = {"source": "/data", "index_dir": None, "columns": None, "max_length": 512, "pad_id": 0, "strict": False}
>>> view = View(what, {"seed": "7", "global_batch": 64})
>>> view.rows(view.order.deal(0, 64, world=2, rank=1).positions).ids
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy as np

from .._state import State
from ..errors import AthanorError
from .chance import I64, U64
from .columns import Array, Column, Rows, columns_of
from .files import DataFile, path_bytes
from .index import RESTART_EVERY, Index, Table, extents, stored_index, view_fingerprint
from .inflate import PlainBytes, StreamBytes
from .order import Order, Totals, Window
from .scan import scan_all
from .state import order_of, state_of
from .tfrecord import Batch, batches, check_payloads

SOURCE_NAME = "data"
_OPEN_SHARDS = 64


def shard_key(source: str, path: str) -> int:
    """What stands for a shard in identities and proofs."""
    return int.from_bytes(hashlib.sha256(path_bytes(f"{source}\0{path}")).digest()[:8], "little")


class View:
    """`view`, `order`: the fields of the protocol's hello. `state`: goes on with its order at its position."""

    def __init__(
        self, view: dict[str, Any], order: dict[str, Any], state: State | None = None, override: bool = False
    ) -> None:
        found, index = stored_index(view["source"], view["index_dir"])
        self.index = scan_all(found, view["source"]) if index is None else index
        self.columns = columns_of(self.index.fields, view, self.index.root)
        self.fingerprint = view_fingerprint(
            self.index.fingerprint, [column.name for column in self.columns], view["max_length"]
        )
        resolved, self.position = order_of(self.totals, self.fingerprint, order, state, override)
        self.order = Order(extents(self.index, resolved.extent), resolved)
        self._samples = Samples(self.index, self.columns, view["strict"])
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

    def take(self, row: int, rows: Rows, item: int) -> None:
        for target, source in zip(self.stored, rows.stored):
            target[row] = source[item]
        self.ids[row] = rows.ids[item]
        self.truncated[row] = rows.truncated[item]

    def padded(self, positions: I64) -> Gathered:
        """As many rows as `positions`: the last one repeated; zeros if there is none."""
        have = len(self.ids)
        if have == len(positions):
            return self
        filled = Gathered(self.columns, len(positions))
        if have > 0:
            rows = np.minimum(np.arange(len(positions)), have - 1)
            filled.stored = [stored[rows] for stored in self.stored]
            filled.ids, filled.truncated = self.ids[rows], self.truncated[rows]
        filled.ids[:, 0] = positions
        return filled


class Samples:
    """Samples read from the shards: plain ones from the nearest restart on, streams by a decoder that runs on."""

    def __init__(self, index: Index, columns: list[Column], strict: bool) -> None:
        self._index = index
        self._columns = columns
        self._strict = strict
        self._files: OrderedDict[int, DataFile] = OrderedDict()
        self._streams: OrderedDict[int, Running] = OrderedDict()

    def read(self, pieces: Iterable[tuple[int, int]]) -> Rows:
        """Runs (first in file order, how many) of samples, decoded one after another."""
        runs = list(pieces)
        rows = Rows(self._columns, sum(count for _, count in runs))
        for first, count in runs:
            while count > 0:
                shard = int(np.searchsorted(self._index.first_sample, first, "right")) - 1
                record = first - int(self._index.first_sample[shard])
                inside = min(count, self._index.shards[shard].records - record)
                self._read_records(rows, shard, record, record + inside)
                first += inside
                count -= inside
        return rows

    def _read_records(self, rows: Rows, shard: int, first: int, stop: int) -> None:
        path = self._index.path(shard)
        key = shard_key(SOURCE_NAME, self._index.shards[shard].path)
        for batch in (
            self._stream(shard, first, stop) if self._index.shards[shard].is_stream else self._plain(shard, first, stop)
        ):
            begin = max(0, first - batch.record)
            end = min(len(batch.starts), stop - batch.record)
            good, fault = check_payloads(path, batch, begin, max(begin, end))
            for i in range(begin, begin + good):
                rows.add(path, key, batch, i, self._strict)
            if fault is not None:
                raise fault

    def _plain(self, shard: int, first: int, stop: int) -> Iterator[Batch]:
        table = self._index.table(shard)
        block = int(np.searchsorted(table.first_record, first, "right")) - 1
        group = (first - int(table.first_record[block])) // RESTART_EVERY
        offset = int(table.segment_offset[block] + table.restarts[table.restart_start[block] + group])
        record = int(table.first_record[block]) + RESTART_EVERY * group
        source = PlainBytes(self._file(shard), offset, _end_of(table, stop))
        for batch in batches(source, record, offset):
            yield batch
            if batch.record + len(batch.starts) >= stop:
                return

    def _stream(self, shard: int, first: int, stop: int) -> Iterator[Batch]:
        running = self._streams.pop(shard, None)
        if running is None or running.first > first:
            running = Running(self._file(shard), self._index.shards[shard].encoding)
        yield from running.until(first, stop)
        self._streams[shard] = running  # not after an error
        while len(self._streams) > _OPEN_SHARDS:
            self._streams.popitem(last=False)

    def _file(self, shard: int) -> DataFile:
        file = self._files.pop(shard, None)
        if file is None:
            row = self._index.shards[shard]
            file = DataFile(self._index.path(shard), (row.size, row.mtime_ns))
        self._files[shard] = file
        while len(self._files) > _OPEN_SHARDS:
            self._files.popitem(last=False)
        return file

    def close(self) -> None:
        self._files.clear()
        self._streams.clear()


class Running:
    """The records of a gzip or zlib shard, forward only. `first`: the first one that can still be had."""

    def __init__(self, file: DataFile, encoding: str) -> None:
        self.first = 0
        self._file = file
        self._batches = batches(StreamBytes(file, encoding))
        self._batch: Batch | None = None

    def until(self, first: int, stop: int) -> Iterator[Batch]:
        """Batches that hold records [first, stop)."""
        batch = self._batch
        while first < stop:
            if batch is not None and batch.record + len(batch.starts) > first:
                yield batch
                first = batch.record + len(batch.starts)
                continue
            batch = self._batch = next(self._batches, None)
            if batch is None:
                raise AthanorError(
                    "ATH_STREAM_CORRUPT",
                    f"the stream ends before record {first}, which the index names",
                    file=self._file.path,
                    remedy="the shard has changed: run `athanor index` again",
                )
            self.first = batch.record


def _end_of(table: Table, stop: int) -> int:
    """A byte border at or behind the end of record stop − 1."""
    block = int(np.searchsorted(table.first_record, stop - 1, "right")) - 1
    group = (stop - 1 - int(table.first_record[block])) // RESTART_EVERY
    following = int(table.restart_start[block]) + group + 1
    inside = following < int(table.restart_start[block + 1])
    return int(table.segment_offset[block] + (table.restarts[following] if inside else table.segment_length[block]))
