"""Records that stand in for bad ones: the rule of docs/reference/quarantine.md.

>>> assign(walk(data, 0, len(data)), 64, len(data))      # one piece of bytes for each of 64 records
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ..errors import AthanorError
from .columns import Column, Rows
from .crc import crc32c, masked, masked_length
from .index import RESTART_EVERY, Table
from .tfrecord import Batch, check_payloads

CONTENT = frozenset(
    {
        "ATH_RECORD_CRC",
        "ATH_RECORD_MALFORMED",
        "ATH_RECORD_TRUNCATED",
        "ATH_RECORD_TOO_LONG",
        "ATH_FEATURE_KIND",
        "ATH_VALUE_RANGE",
        "ATH_VALUE_MISSING",
    }
)
_MAX_PAYLOAD = 2**31 - 17
_DAMAGED = "the file is damaged: copy or write the shard again"


def replaced_codes(quarantine: dict[str, Any] | None) -> frozenset[str]:
    """Codes of the errors that are replaced. `quarantine`: the hello's."""
    if quarantine is None:
        return frozenset()
    storage = frozenset({"ATH_STORAGE_IO"} if quarantine["on_io_error"] == "replace" else ())
    return storage | (CONTENT if quarantine["on_corrupt"] == "replace" else frozenset())


class Piece(NamedTuple):
    """Bytes [begin, end) of a record, or of something damaged."""

    begin: int
    end: int
    damaged: bool


def walk(data: bytes, begin: int, end: int) -> list[Piece]:
    """Records and damaged pieces of data[begin:end]."""
    pieces = []
    while begin < end:
        behind = _end_of(data, begin, end)
        damaged = behind < 0
        if damaged:
            behind = _next_whole(data, begin + 1, end)
        pieces.append(Piece(begin, behind, damaged))
        begin = behind
    return pieces


def _end_of(data: bytes, at: int, end: int) -> int:
    """Behind the record whose header lies at `at`; -1: no header fits there, or the record passes `end`."""
    # A length below 2 GiB: the four zeros sort out nearly every place before a CRC is computed.
    if at + 12 > end or data[at + 4 : at + 8] != b"\0\0\0\0":
        return -1
    length, crc = struct.unpack_from("<QI", data, at)
    if length > _MAX_PAYLOAD or at + length + 16 > end or masked_length(data[at : at + 8]) != crc:
        return -1
    return int(at + length + 16)


def _next_whole(data: bytes, at: int, end: int) -> int:
    """Where the next record begins whose two CRCs fit; `end` if there is none."""
    while True:
        zeros = data.find(b"\0\0\0\0", at + 4, end)
        if zeros < 0:
            return end
        at = zeros - 4
        behind = _end_of(data, at, end)
        if behind >= 0 and masked(crc32c(data[at + 12 : behind - 4])) == int.from_bytes(
            data[behind - 4 : behind], "little"
        ):
            return at
        at += 1


def assign(pieces: list[Piece], count: int, end: int) -> list[Piece]:
    """One piece for each of the `count` records that the index names."""
    if len(pieces) == count:
        return pieces
    damaged = [i for i, piece in enumerate(pieces) if piece.damaged]
    front = pieces[: damaged[0] if damaged else len(pieces)][:count]
    rest = count - len(front)
    back = pieces[damaged[-1] + 1 :][-rest:] if damaged and rest > 0 else []
    hole = Piece(pieces[damaged[0]].begin if damaged else end, end, True)
    return [*front, *[hole] * (rest - len(back)), *back]


def lost(file: str, data: bytes, offset: int, record: int, begin: int, end: int) -> AthanorError:
    """Why the record at data[begin:] is lost. `offset`: of data's first byte in the shard."""
    code, what = "ATH_RECORD_CRC", "the index names this record, the bytes hold no record for it"
    if 0 < end - begin < 12:
        code = "ATH_RECORD_TRUNCATED"
        what = f"record truncated: a header takes 12 bytes, only {end - begin} bytes remain"
    elif begin < end:
        length, crc = struct.unpack_from("<QI", data, begin)
        found = masked_length(data[begin : begin + 8])
        if found != crc:
            what = f"length CRC32C mismatch: found {crc:#010x}, computed {found:#010x} over the 8 length bytes"
        elif length > _MAX_PAYLOAD:
            code = "ATH_RECORD_TOO_LONG"
            what = f"record of {length} payload bytes, at most {_MAX_PAYLOAD} are read"
        else:
            code = "ATH_RECORD_TRUNCATED"
            what = f"record truncated: header says {length} payload bytes, only {end - begin - 12} bytes remain"
    return AthanorError(code, what, file=file, record=record, byte_offset=offset + begin, remedy=_DAMAGED)


class Block(NamedTuple):
    """The records of a block, and which of them are bad, by number in it."""

    batch: Batch
    faults: dict[int, AthanorError]

    @property
    def good(self) -> list[int]:
        return [i for i in range(len(self.batch.starts)) if i not in self.faults]


def survey(file: str, data: bytes, table: Table, block: int, columns: list[Column]) -> Block:
    """`data`: the bytes of the block."""
    first, stop = (int(n) for n in table.first_record[block : block + 2])
    offset = int(table.segment_offset[block])
    restarts = [int(n) for n in table.restarts[table.restart_start[block] : table.restart_start[block + 1]]]
    pieces: list[Piece] = []
    faults: dict[int, AthanorError] = {}
    for begin, end in zip(restarts, [*restarts[1:], len(data)]):
        count = min(RESTART_EVERY, stop - first - len(pieces))
        for piece in assign(walk(data, begin, end), count, end):
            if piece.damaged:
                faults[len(pieces)] = lost(file, data, offset, first + len(pieces), piece.begin, end)
            pieces.append(piece)
    starts = np.array([piece.begin + 12 for piece in pieces], np.int64)
    lengths = np.array([piece.end - piece.begin - 16 for piece in pieces], np.int64)
    batch = Batch(first, offset, np.frombuffer(data, np.uint8), starts, lengths)
    for i in range(len(pieces)):
        if i not in faults:
            fault = check_payloads(file, batch, i, i + 1)[1] or _undecodable(file, batch, i, columns)
            if fault is not None:
                faults[i] = fault
    return Block(batch, faults)


def _undecodable(file: str, batch: Batch, i: int, columns: list[Column]) -> AthanorError | None:
    try:
        Rows(columns, 1).add(file, 0, batch, i, False)
    except AthanorError as fault:
        if fault.code not in CONTENT:
            raise
        return fault
    return None


def stand_in(
    block: int, i: int, blocks: int, of: Callable[[int], Block | AthanorError], fault: AthanorError
) -> tuple[Block, int]:
    """What stands in for bad record `i` of `block`. `of`: a block of the shard, or why it cannot be read."""
    own = of(block)
    if not isinstance(own, AthanorError) and own.good:
        return own, next((other for other in own.good if other > i), own.good[-1])
    for other in _neighbours(block, blocks):
        found = of(other)
        if not isinstance(found, AthanorError) and found.good:
            return found, found.good[i % len(found.good)]
    raise AthanorError(
        "ATH_NO_GOOD_RECORD",
        f"no record of the shard can stand in for this one: {fault.what}",
        file=fault.file,
        record=fault.record,
        byte_offset=fault.byte_offset,
        remedy="restore the shard, or leave it out",
    )


def _neighbours(block: int, blocks: int) -> Iterator[int]:
    """Those before, the nearest first, then those behind."""
    yield from range(block - 1, -1, -1)
    yield from range(block + 1, blocks)
