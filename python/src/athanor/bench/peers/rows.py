"""Does a contender deliver the set that it is said to? Each row of its next batches must be a row of the memory map."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..memmap import load

BATCHES = 4
BLOCK = 4096


def check_rows(batches: Iterator[dict[str, Any]], memmap: str, masks: bool = True) -> int:
    """Number of rows looked at; ValueError when one, with its mask if `masks`, is none of the set."""
    ids, mask = load(memmap)
    rng = np.random.default_rng(7)
    a, b = (rng.integers(1, 1 << 62, ids.shape[1], dtype=np.int64) for _ in range(2))

    def sums(x: Any, y: Any) -> np.ndarray:
        found = np.asarray(x, np.int64) @ a  # wraps, as a hash may
        return found + np.asarray(y, np.int64) @ b if masks else found

    known = np.concatenate([sums(ids[i : i + BLOCK], mask[i : i + BLOCK]) for i in range(0, len(ids), BLOCK)])
    rows = 0
    for batch in itertools.islice(batches, BATCHES):
        found = sums(batch["input_ids"].numpy(), batch["attention_mask"].numpy())
        if not np.isin(found, known).all():
            raise ValueError(f"{int((~np.isin(found, known)).sum())} of {len(found)} rows are none of the set's")
        rows += len(found)
    return rows
