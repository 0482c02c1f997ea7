"""Samples of one source read from its shards, by number in file order.

>>> samples = Samples("data", index, cuts, columns, strict=False)
>>> samples.read([(17, 3)]).stored          # samples 17, 18 and 19
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ..errors import AthanorError
from .columns import Column, Rows
from .example import Feature
from .files import DataFile, path_bytes
from .index import RESTART_EVERY, Index, Table
from .inflate import PlainBytes, StreamBytes
from .ledger import Ledger
from .quarantine import Block, replaced_codes, stand_in, survey
from .tfrecord import Batch, batches, check_payloads
from .tokens import Cut

_OPEN_SHARDS = 64
_BLOCKS = 4


def shard_key(source: str, path: str) -> int:
    """What stands for a shard in identities and proofs."""
    return int.from_bytes(hashlib.sha256(path_bytes(f"{source}\0{path}")).digest()[:8], "little")


class Samples:
    """Samples read from the shards: plain ones from the nearest restart on, streams by a decoder that runs on, tokens
    by arithmetic. `index` counts in samples; `cuts`: of its shards of tokens."""

    def __init__(
        self,
        source: str,
        index: Index,
        cuts: Mapping[int, Cut],
        columns: list[Column],
        strict: bool,
        quarantine: dict[str, Any] | None = None,
    ) -> None:
        self._source = source
        self._index = index
        self._cuts = cuts
        self._columns = columns
        self._strict = strict
        self._replaces = replaced_codes(quarantine)
        self._ledger = None if quarantine is None else Ledger(quarantine["ledger_dir"], quarantine["quota"])
        self._blocks: OrderedDict[tuple[int, int], Block | AthanorError] = OrderedDict()
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
                if shard in self._cuts:
                    self._read_tokens(rows, shard, record, record + inside)
                else:
                    self._read_records(rows, shard, record, record + inside)
                first += inside
                count -= inside
        return rows

    def _read_records(self, rows: Rows, shard: int, first: int, stop: int) -> None:
        ledger, filled = self._ledger, rows.filled
        if ledger is not None and self._is_known(shard, first, stop):
            self._read_around(rows, shard, first, stop, ledger)
            return
        try:
            self._read_good(rows, shard, first, stop)
        except AthanorError as error:
            if ledger is None or error.code not in self._replaces:
                raise
            rows.back_to(filled)
            self._read_around(rows, shard, first, stop, ledger)

    def _read_good(self, rows: Rows, shard: int, first: int, stop: int) -> None:
        path = self._index.path(shard)
        key = shard_key(self._source, self._index.shards[shard].path)
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

    def _read_around(self, rows: Rows, shard: int, first: int, stop: int, ledger: Ledger) -> None:
        """Like `_read_good`, block by block, where another record stands in for each bad one."""
        path, table, name = self._index.path(shard), self._index.table(shard), self._index.shards[shard].path
        key = shard_key(self._source, name)
        blocks = len(table.first_record) - 1
        block = int(np.searchsorted(table.first_record, first, "right")) - 1
        for record in range(first, stop):
            while record >= int(table.first_record[block + 1]):
                block += 1
            i = record - int(table.first_record[block])
            own = self._block(shard, block)
            if isinstance(own, AthanorError):
                fault, byte_offset = own, int(table.segment_offset[block])
            elif i in own.faults:
                fault = own.faults[i]
                byte_offset = int(fault.byte_offset or 0)
            else:
                rows.add(path, key, own.batch, i, self._strict)
                continue
            instead, number = stand_in(block, i, blocks, lambda n: self._block(shard, n), fault)
            rows.add(path, key, instead.batch, number, self._strict)
            rows.replaced[rows.filled - 1] = True
            ledger.add(
                {
                    "source": self._source,
                    "shard": name,
                    "record": record,
                    "byteOffset": byte_offset,
                    "code": fault.code,
                    "replacement": {"shard": name, "record": instead.batch.record + number},
                },
                path,
            )

    def _is_known(self, shard: int, first: int, stop: int) -> bool:
        """Were all blocks of these records surveyed not long ago?"""
        borders = self._index.table(shard).first_record
        blocks = range(
            int(np.searchsorted(borders, first, "right")) - 1, int(np.searchsorted(borders, stop - 1, "right"))
        )
        return all((shard, block) in self._blocks for block in blocks)

    def _block(self, shard: int, block: int) -> Block | AthanorError:
        """A block with what is bad in it, or why it cannot be read where that is replaced, too."""
        found = self._blocks.pop((shard, block), None)
        if found is None:
            try:
                data = self._block_bytes(shard, block)
                found = survey(self._index.path(shard), data, self._index.table(shard), block, self._columns)
            except AthanorError as error:
                if error.code != "ATH_STORAGE_IO" or error.code not in self._replaces:
                    raise
                found = error
        self._blocks[shard, block] = found
        while len(self._blocks) > _BLOCKS:
            self._blocks.popitem(last=False)
        return found

    def _block_bytes(self, shard: int, block: int) -> bytes:
        table, file = self._index.table(shard), self._file(shard)
        offset, length = int(table.segment_offset[block]), int(table.segment_length[block])
        if not self._index.shards[shard].is_stream:
            return file.read(offset, length)
        stream = StreamBytes(file, self._index.shards[shard].encoding)
        data = b""
        while len(data) < offset + length:
            part = stream.read(offset + length - len(data))
            if not part:
                raise _short_stream(file, f"byte {offset + length}")
            data += part
        return data[offset:]

    def _read_tokens(self, rows: Rows, shard: int, first: int, stop: int) -> None:
        tokens, file = self._index.tokens[shard], self._file(shard)
        key = shard_key(self._source, self._index.shards[shard].path)
        starts, stops = self._cuts[shard].spans(np.arange(first, stop, dtype=np.int64))
        # The samples of a run lie one behind another: one read.
        begin = int(starts[0])
        values = tokens.read(file, begin, int(stops[-1]))
        for start, end in zip(starts.tolist(), stops.tolist()):
            ids = values[start - begin : end - begin]
            rows.put(key, *tokens.record_of(start), {b"input_ids": Feature("int64", len(ids), ids)})

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
        # Not left to whoever still holds one: an error on its way to the user does.
        for file in self._files.values():
            file.close()
        self._files.clear()
        self._streams.clear()
        self._blocks.clear()
        if self._ledger is not None:
            self._ledger.close()


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
                raise _short_stream(self._file, f"record {first}")
            self.first = batch.record


def _short_stream(file: DataFile, what: str) -> AthanorError:
    return AthanorError(
        "ATH_STREAM_CORRUPT",
        f"the stream ends before {what}, which the index names",
        file=file.path,
        remedy="the shard has changed: run `athanor index` again",
    )


def _end_of(table: Table, stop: int) -> int:
    """A byte border at or behind the end of record stop − 1."""
    block = int(np.searchsorted(table.first_record, stop - 1, "right")) - 1
    group = (stop - 1 - int(table.first_record[block])) // RESTART_EVERY
    following = int(table.restart_start[block]) + group + 1
    inside = following < int(table.restart_start[block + 1])
    return int(table.segment_offset[block] + (table.restarts[following] if inside else table.segment_length[block]))
