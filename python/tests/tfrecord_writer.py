"""Writes TFRecord files of tf.train.Example in plain Python, for tests: slow and short.

Framing: u64 length, masked CRC32C of it, payload, masked CRC32C of the payload (little-endian).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_TABLE = []
for _byte in range(256):
    for _ in range(8):
        _byte = _byte >> 1 ^ (0x82F63B78 if _byte & 1 else 0)
    _TABLE.append(_byte)


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def example(features: dict[str, Any]) -> bytes:
    """Values: int or list of int (int64_list), list of float (float_list), str (bytes_list), None (no kind)."""
    entries = b""
    for name, value in features.items():
        if value is None:
            feature = b""
        elif isinstance(value, str):
            feature = field(1, field(1, value.encode()))
        elif isinstance(value, list) and value and isinstance(value[0], float):
            feature = field(2, field(1, struct.pack(f"<{len(value)}f", *value)))
        else:
            numbers = value if isinstance(value, list) else [value]
            feature = field(3, field(1, b"".join(varint(n) for n in numbers)))
        entries += field(1, field(1, name.encode()) + field(2, feature))
    return field(1, entries)


def frame(payload: bytes) -> bytes:
    length = struct.pack("<Q", len(payload))
    return length + masked(length) + payload + masked(payload)


def write(path: Path, records: Iterable[dict[str, Any]]) -> None:
    with path.open("wb") as file:
        for record in records:
            file.write(frame(example(record)))


def from_jsonl(source: Path, target: Path) -> None:
    """Each .jsonl of a folder as a .tfrecord."""
    target.mkdir(parents=True, exist_ok=True)
    for shard in sorted(source.glob("*.jsonl")):
        lines = shard.read_text(encoding="utf-8").split("\n")
        write(target / f"{shard.stem}.tfrecord", (json.loads(line) for line in lines if line))
