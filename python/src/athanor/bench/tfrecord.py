"""TFRecord and tf.train.Example in numpy: what the bench's own contenders and data need.

Contract: `walk` is how a map-style Dataset without an index finds a record: it opens the shard and reads
record after record from the start, through a buffer of 256 KiB (TensorFlow's default). CRCs are written but
not checked here (TensorFlow checks them; this favours the naive contender). Record and byte numbers start at 0.

Format: u64 length | u32 masked CRC32C of the length | payload | u32 masked CRC32C of the payload, little-endian;
the payload is a tf.train.Example (field 1 features, map entries name -> Feature, field 3 Int64List, packed or not).

    for payload in walk("train_000.tfrecord"):
        ids = example(payload)["input_ids"]          # int64 [n]
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

READ_BUFFER = 256 * 1024


def walk(path: str) -> Iterator[bytes]:
    """Payloads of a plain or gzip shard in file order; a short end is an EOFError naming file and byte."""
    with open(path, "rb", buffering=READ_BUFFER) as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        stream: Any = gzip.GzipFile(fileobj=raw) if packed else raw
        offset = 0
        while True:
            head = stream.read(12)
            if not head:
                return
            if len(head) < 12:
                raise EOFError(f"{path}: record header at byte {offset} is cut: expected 12 bytes, found {len(head)}")
            (length,) = struct.unpack_from("<Q", head)
            body = stream.read(length + 4)
            if len(body) < length + 4:
                raise EOFError(
                    f"{path}: record at byte {offset} is cut: expected {length + 4} bytes, found {len(body)}"
                )
            offset += 16 + length
            yield body[:length]


def varints(data: bytes) -> np.ndarray:
    """Packed varints -> int64 [n]."""
    raw = np.frombuffer(data, np.uint8)
    if raw.size == 0 or raw.max() < 128:
        return raw.astype(np.int64)
    ends = np.flatnonzero(raw < 128)
    if ends.size == 0 or ends[-1] != raw.size - 1:
        raise ValueError("varint runs past the end of its list")
    starts = np.concatenate(([0], ends[:-1] + 1))
    shift = np.arange(raw.size) - np.repeat(starts, ends - starts + 1)
    if shift.max() > 9:
        raise ValueError("varint is longer than 10 bytes")
    parts = (raw & 127).astype(np.uint64) << (7 * shift).astype(np.uint64)
    return np.bitwise_or.reduceat(parts, starts).view(np.int64)


def example(payload: bytes) -> dict[str, np.ndarray]:
    """The int64 features of one Example; float and bytes features are left out. The last of a name wins."""
    found: dict[str, np.ndarray] = {}
    for field, features in _fields(payload):
        if field != 1:
            continue
        for entry_field, entry in _fields(features):
            if entry_field != 1:
                continue
            name, feature = "", b""
            for number, value in _fields(entry):
                if number == 1:
                    name = value.decode()
                elif number == 2:
                    feature = value
            for kind, values in _fields(feature):
                if kind == 3:
                    lists = [varints(run) for number, run in _fields(values) if number == 1]
                    found[name] = np.concatenate(lists) if lists else np.zeros(0, np.int64)
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError(f"bad varint at byte {at} of a message of {len(data)} bytes")
        byte = data[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value, at
        shift += 7


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(number, bytes) of each field; an unpacked varint comes as the bytes of that varint."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        wire = key & 7
        if wire == 2:
            length, at = _varint(data, at)
            end = at + length
        elif wire == 0:
            _, end = _varint(data, at)
        elif wire in (1, 5):
            end = at + (8 if wire == 1 else 4)
        else:
            raise ValueError(f"wire type {wire} at byte {at} is not used by tf.train.Example")
        if end > len(data):
            raise ValueError(f"field of {end - at} bytes at byte {at} passes the end of a message of {len(data)}")
        yield key >> 3, data[at:end]
        at = end
