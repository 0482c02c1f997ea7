"""Writes Megatron pairs in plain Python, for tests, and cuts tokens as docs/reference/formats.md says."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

TYPES = {"u1": 1, "i1": 2, "<i2": 3, "<i4": 4, "<i8": 5, "<u2": 8}


def write_pair(
    stem: Path, documents: Sequence[Sequence[int]], dtype: str, cuts: Sequence[int] = (), modes: bool = False
) -> None:
    """`cuts`: documents that are stored as two sequences."""
    sequences: list[Sequence[int]] = []
    borders = [0]
    for number, document in enumerate(documents):
        parts = [document[: len(document) // 2], document[len(document) // 2 :]] if number in cuts else [document]
        sequences += parts
        borders.append(len(sequences))
    size = np.dtype(dtype).itemsize
    lengths = [len(sequence) for sequence in sequences]
    pointers = (np.cumsum([0, *lengths])[:-1] * size).astype("<i8")
    stem.with_suffix(".bin").write_bytes(b"".join(np.array(sequence, dtype).tobytes() for sequence in sequences))
    stem.with_suffix(".idx").write_bytes(
        b"MMIDIDX\0\0"
        + struct.pack("<QBQQ", 1, TYPES[dtype], len(lengths), len(borders))
        + np.array(lengths, "<i4").tobytes()
        + pointers.tobytes()
        + np.array(borders, "<i8").tobytes()
        + bytes(len(lengths) if modes else 0)
    )


def pieces(tokens: Sequence[int], length: int) -> list[list[int]]:
    return [list(tokens[at : at + length]) for at in range(0, len(tokens), length)]


def rows_of(batch: dict[str, Any]) -> list[list[int]]:
    """Rows without their padding, which must be zeros."""
    found = []
    for ids, mask in zip(batch["input_ids"], batch["attention_mask"]):
        kept = int(mask.sum())
        assert mask.tolist() == [1] * kept + [0] * (len(mask) - kept)
        assert not ids[kept:].any()
        found.append(ids[:kept].tolist())
    return found
