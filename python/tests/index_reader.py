"""A small reader of the index format (docs/reference/index-format.md): the second opinion of the tests."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

MAGIC = b"ATHIDX01"
ENCODINGS = ("plain", "gzip", "zlib")


def crc32c(data: bytes) -> int:
    """Castagnoli CRC, table of 256: slow, and only for small files."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 255] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


_TABLE = _table()


def _open(path: Path, kind: int) -> tuple[bytes, int, int, int, Any]:
    raw = path.read_bytes()
    if len(raw) < 64 or raw[:8] != MAGIC:
        raise ValueError(f"{path}: not an index file")
    fields = struct.unpack_from("<IIQIIQQQII", raw, 8)
    version, found_kind, length, crc, rows, a, b, json_bytes, zero, header_crc = fields
    if header_crc != crc32c(raw[:60]):
        raise ValueError(f"{path}: header CRC")
    if (version, found_kind, zero) != (1, kind, 0):
        raise ValueError(f"{path}: version {version}, kind {found_kind}")
    payload = raw[64:]
    if len(payload) != length or crc32c(payload) != crc:
        raise ValueError(f"{path}: payload")
    return payload, rows, a, b, json.loads(payload[length - json_bytes :])


def read_shards(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The manifest and the rows of shards.bin."""
    payload, rows, runs, _, manifest = _open(path, 1)
    records = np.frombuffer(payload, "<f8", runs, rows * 72)
    tokens = np.frombuffer(payload, "<f8", runs, rows * 72 + runs * 8)
    paths_at = rows * 72 + runs * 16
    shards = []
    for row in range(rows):
        size, mtime, count, values, run, run_count, crc, encoding, blocks, largest, path_bytes, path_at = (
            struct.unpack_from("<QqQQQIIIIIIQ", payload, row * 72)
        )
        start = paths_at + path_at
        shards.append(
            {
                "path": payload[start : start + path_bytes].decode(),
                "size": size,
                "mtime_ns": mtime,
                "records": count,
                "tokens": values,
                "crc32c": crc,
                "encoding": ENCODINGS[encoding],
                "blocks": blocks,
                "largest_block": largest,
                "run_records": records[run : run + run_count].tolist(),
                "run_tokens": tokens[run : run + run_count].tolist(),
            }
        )
    return manifest, shards


def table_name(shard: dict[str, Any]) -> str:
    identity = f"{shard['path']}\0{shard['size']}\0{shard['crc32c']}"
    return hashlib.sha256(identity.encode()).hexdigest()[:16] + ".bin"


def read_table(path: Path) -> dict[str, Any]:
    """One block table: its columns as arrays, and the members of its JSON."""
    payload, blocks, segments, restarts, identity = _open(path, 2)
    columns = [
        ("first_record", "<f8", blocks + 1),
        ("tokens", "<f8", blocks),
        ("segment_offset", "<f8", segments),
        ("segment_length", "<f8", segments),
        ("segment_start", "<u4", blocks + 1),
        ("segment_file", "<u4", segments),
        ("restart_start", "<u4", blocks + 1),
        ("restarts", "<u4", restarts),
    ]
    table: dict[str, Any] = dict(identity)
    at = 0
    for name, dtype, count in columns:
        table[name] = np.frombuffer(payload, dtype, count, at)
        at += table[name].nbytes
    return table


def data_fingerprint(shards: list[dict[str, Any]]) -> str:
    hasher = hashlib.sha256()
    for shard in sorted(shards, key=lambda shard: shard["path"].encode()):
        hasher.update(f"{shard['path']}\0{shard['size']}\0{shard['records']}\0{shard['crc32c']}\n".encode())
    return hasher.hexdigest()[:32]
