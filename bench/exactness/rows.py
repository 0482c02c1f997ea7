"""The samples of the exactness benchmark: rows whose values are a function of their id, so that an id that comes out of
a batch also says that its row is whole."""

from __future__ import annotations

from typing import Any

import numpy as np

Rows = np.ndarray[Any, np.dtype[np.int64]]
WIDTH = 16


def rows_of(ids: Any) -> Rows:
    """[n, WIDTH]: the id, then what follows from it."""
    first = np.asarray(ids, np.int64)[:, None]
    rows = (first * 7919 + np.arange(WIDTH, dtype=np.int64) * 104_729) % 2_000_003
    rows[:, :1] = first
    return rows


def ids_of(batch: Any) -> list[int]:
    """The ids of a batch of rows, as any loader gives it (tensor, array, lists)."""
    rows = np.asarray(batch, np.int64)
    if rows.ndim != 2 or rows.shape[1] != WIDTH or not np.array_equal(rows, rows_of(rows[:, 0])):
        raise RuntimeError(f"a batch of shape {rows.shape} holds rows that are not those of its ids")
    return [int(number) for number in rows[:, 0]]
