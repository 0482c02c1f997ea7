"""One tf.train.Example as lists of values.

Source of the format: tensorflow/core/example/example.proto and feature.proto; protobuf wire encoding.

    Example { Features features = 1 }   Features { map<string, Feature> feature = 1 }
    Feature { oneof kind { BytesList = 1, FloatList = 2, Int64List = 3 } }   each list { repeated value = 1 }

A feature without a kind is None, an empty list is empty. Of two features of one name the last wins; lists of one kind
are joined, as protobuf merges messages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import numpy as np

from ..errors import AthanorError
from .tfrecord import Batch

KINDS = ("", "bytes", "float", "int64")
_NO_INTS = np.zeros(0, np.int64)


class Feature(NamedTuple):
    """`values`: int64 or float32 array; for bytes only how many."""

    kind: str
    size: int
    values: Any


class PayloadFault(Exception):
    """`at`: offset in the payload. `sequence`: it is a SequenceExample."""

    def __init__(self, at: int, sequence: bool = False) -> None:
        super().__init__(at)
        self.at = at
        self.sequence = sequence


def example_of(file: str, batch: Batch, i: int, wanted: Collection[bytes] | None = None) -> dict[bytes, Feature | None]:
    """Features of record i of a batch (`wanted`: of these names only). Raises ATH_RECORD_MALFORMED."""
    payload = batch.payload(i).tobytes()
    try:
        return parse(payload, wanted)
    except PayloadFault as fault:
        place: dict[str, Any] = {
            "file": file,
            "record": batch.record + i,
            "byte_offset": batch.record_offset(i),
        }
        if fault.sequence:
            raise AthanorError(
                "ATH_FORMAT_UNSUPPORTED",
                "the payload is a tf.train.SequenceExample, expected tf.train.Example",
                remedy="write its lists as features of an Example",
                **place,
            ) from None
        raise AthanorError(
            "ATH_RECORD_MALFORMED",
            f"payload is no tf.train.Example: bytes that are not protobuf at byte "
            f"{batch.record_offset(i) + 12 + fault.at}",
            remedy="write the shard again with tf.train.Example records",
            **place,
        ) from None


def parse(data: bytes, wanted: Collection[bytes] | None = None) -> dict[bytes, Feature | None]:
    """Raises PayloadFault."""
    found: dict[bytes, Feature | None] = {}
    for tag, _, begin, end in _fields(data, 0, len(data)):
        if tag == 0x12 and wanted is None:
            raise PayloadFault(begin, sequence=True)
        if tag != 0x0A:
            continue
        for entry, _, entry_begin, entry_end in _fields(data, begin, end):
            if entry != 0x0A:
                continue
            name = b""
            value: tuple[int, int] | None = None
            for part, at, part_begin, part_end in _fields(data, entry_begin, entry_end):
                if part == 0x0A:
                    name = data[part_begin:part_end]
                elif part == 0x12:
                    if value is not None:
                        raise PayloadFault(at)
                    value = part_begin, part_end
            if wanted is None or name in wanted:
                found[name] = None if value is None else _feature(data, *value)
    return found


def _feature(data: bytes, begin: int, end: int) -> Feature | None:
    number = count = 0
    parts: list[Any] = []
    for tag, _, list_begin, list_end in _fields(data, begin, end):
        if tag & 7 != 2 or tag >> 3 > 3:
            continue
        if tag >> 3 != number:  # the last kind wins
            number, count, parts = tag >> 3, 0, []
        single = (0x0A, 0x0D, 0x08)[number - 1]
        for item, _, item_begin, item_end in _fields(data, list_begin, list_end):
            if item not in (0x0A, single):
                continue
            if number == 1:
                count += 1
                continue
            if number == 3:
                values = _varints(data, item_begin, item_end)
            elif (item_end - item_begin) % 4 != 0:
                raise PayloadFault(item_begin)
            else:
                values = np.frombuffer(data, "<f4", (item_end - item_begin) // 4, item_begin)
            parts.append(values)
            count += len(values)
    if number == 0:
        return None
    if number == 1:
        return Feature("bytes", count, None)
    if len(parts) == 1:
        return Feature(KINDS[number], count, parts[0])
    empty = _NO_INTS if number == 3 else np.zeros(0, np.float32)
    return Feature(KINDS[number], count, np.concatenate([empty, *parts]))


def _fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """(tag, its offset, first and last offset of the value) of each field of a message."""
    while at < end:
        tag, begin = _tag(data, at, end)
        begin, behind = _span(data, tag, at, begin, end, 0)
        yield tag, at, begin, behind
        at = behind


def _tag(data: bytes, at: int, end: int) -> tuple[int, int]:
    tag, begin = _varint(data, at, end)
    if not 8 <= tag <= 0xFFFFFFFF:
        raise PayloadFault(at)
    return tag, begin


def _span(data: bytes, tag: int, at: int, begin: int, end: int, depth: int) -> tuple[int, int]:
    wire = tag & 7
    if wire == 2:
        length, begin = _varint(data, begin, end)
        behind = begin + length
    elif wire == 0:
        behind = _varint(data, begin, end)[1]
    elif wire in (1, 5):
        behind = begin + (8 if wire == 1 else 4)
    elif wire == 3 and depth < 100:
        inside = begin
        while True:
            inner, inner_begin = _tag(data, inside, end)
            if inner & 7 == 4:
                if inner >> 3 != tag >> 3:
                    raise PayloadFault(at)
                return begin, inner_begin
            inside = _span(data, inner, inside, inner_begin, end, depth + 1)[1]
    else:
        raise PayloadFault(at)
    if behind > end:
        raise PayloadFault(at)
    return begin, behind


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = 0
    for i in range(min(10, end - at)):
        byte = data[at + i]
        value |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            return value & 2**64 - 1, at + i + 1
    raise PayloadFault(at)


def _varints(data: bytes, begin: int, end: int) -> Any:
    """All varints of a packed list (or a single one), as int64."""
    if begin == end:
        return _NO_INTS
    raw = np.frombuffer(data, np.uint8, end - begin, begin)
    last = np.flatnonzero(raw < 0x80)
    first = np.concatenate([np.zeros(1, np.int64), last[:-1] + 1])
    sizes = last - first + 1
    if len(last) == 0 or last[-1] != len(raw) - 1 or sizes.max() > 10:
        raise PayloadFault(begin)
    values = (raw[first] & 0x7F).astype(np.uint64)
    for i in range(1, int(sizes.max())):
        longer = np.flatnonzero(sizes > i)
        values[longer] |= (raw[first[longer] + i] & 0x7F).astype(np.uint64) << np.uint64(7 * i)
    return values.view(np.int64)
