"""`.athanor/views/` read by its page (docs/reference/index-format.md), and rows packed by theirs (formats.md): a second
pair of eyes, which shares no code with the agent."""

from __future__ import annotations

import bisect
import hashlib
import json
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from athanor.reference.crc import crc32c

Piece = tuple[int, int, int]  # record, first token, tokens


class Header(NamedTuple):
    kind: int
    payload: int
    crc: int
    rows: int
    a: int
    b: int
    json: int


def header(data: bytes) -> Header:
    magic, version, kind, payload, crc, rows, a, b, text, zero, own = struct.unpack_from("<8sIIQIIQQQII", data)
    assert (magic, version, zero) == (b"ATHIDX01", 3, 0)
    assert own == crc32c(data[:60])
    return Header(kind, payload, crc, rows, a, b, text)


def table_name(path: str, size: int, crc: int) -> str:
    return hashlib.sha256(f"{path}\0{size}\0{crc}".encode()).hexdigest()[:16] + ".bin"


def counts(file: Path) -> tuple[dict[str, Any], list[list[int]]]:
    """Tokens of each record, by block; borders of blocks come from the block table beside."""
    data = file.read_bytes()
    head = header(data)
    assert head.kind == 3
    assert len(data) == 64 + head.payload
    text = data[len(data) - head.json :]
    assert head.crc == crc32c(text)
    about = json.loads(text)
    assert file.name == table_name(about["path"], about["size"], about["crc32c"])
    table = (file.parents[2] / "blocks" / file.name).read_bytes()
    assert header(table).rows == head.rows
    first = np.frombuffer(table, "<f8", head.rows + 1, 64).astype(int).tolist()
    assert first[-1] == head.a
    found = []
    for block in range(head.rows):
        at = 64 + 4 * (first[block] + block)
        words = np.frombuffer(data, "<u4", first[block + 1] - first[block] + 1, at)
        assert words[0] == crc32c(words[1:].tobytes())
        found.append(words[1:].tolist())
    return about, found


def view(file: Path) -> dict[str, Any]:
    data = file.read_bytes()
    head = header(data)
    assert (head.kind, head.b) == (4, 1)
    payload = data[64:]
    assert len(payload) == head.payload
    assert crc32c(payload) == head.crc
    facts: dict[str, Any] = json.loads(payload[len(payload) - head.json :])
    tokens = np.frombuffer(payload, "<f8", head.rows).tolist()
    rows = np.frombuffer(payload, "<u4", head.a, head.rows * 8).tolist()
    crcs = np.frombuffer(payload, "<u4", head.a, head.rows * 8 + head.a * 4).tolist()
    return facts | {"shardTokens": tokens, "rows": rows, "countsCrc": crcs}


def pack(lengths: list[int], most: int) -> list[list[Piece]]:
    """Best-fit decreasing, with a sorted list of (room, when it got that room, row)."""
    pieces = [(i, at, min(most, n - at)) for i, n in enumerate(lengths) for at in range(0, n, most)]
    rows: list[list[Piece]] = []
    room: list[tuple[int, int, int]] = []
    for clock, piece in enumerate(sorted(pieces, key=lambda piece: -piece[2])):
        at = bisect.bisect_left(room, (piece[2], -1, -1))
        if at == len(room):
            rows.append([])
            left, row = most, len(rows) - 1
        else:
            left, _, row = room.pop(at)
        rows[row].append(piece)
        bisect.insort(room, (left - piece[2], clock, row))
        while room and room[0][0] == 0:
            room.pop(0)
    return sorted(sorted(row) for row in rows)


def split(lengths: list[int], most: int) -> list[list[Piece]]:
    return [[(i, at, min(most, n - at))] for i, n in enumerate(lengths) for at in range(0, max(n, 1), most)]
