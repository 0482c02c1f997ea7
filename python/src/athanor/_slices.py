"""The part of each row that one context-parallel rank gets. Cut out in the one copy from the slot.

    contiguous   rank r of n: the r-th of n chunks
    zigzag       2·n chunks, rank r has the r-th from the front and the r-th from the back, as Megatron and
                 TransformerEngine do it: under causal attention each rank has the same work

>>> Slices(8, 1, 2, "zigzag").positions.tolist()
[2, 3, 4, 5]
"""

from __future__ import annotations

from typing import Any

import numpy as np

SPLITS = ("zigzag", "contiguous")


class Slices:
    def __init__(self, width: int, rank: int, size: int, split: str) -> None:
        chunks = size if split == "contiguous" or size == 1 else 2 * size
        if width % chunks != 0:
            raise ValueError(
                f'max_length must be a multiple of {chunks} for {size} context-parallel ranks with cp_split="{split}", '
                f"got {width}"
            )
        chunk = width // chunks
        mine = (rank,) if chunks == size else (rank, chunks - 1 - rank)
        self.whole = size == 1
        self.spans = tuple((k * chunk, (k + 1) * chunk) for k in mine)
        self.width = chunk * len(mine)
        # Where in the row each delivered value stood.
        self.positions: np.ndarray[Any, np.dtype[np.int64]] = np.concatenate(
            [np.arange(start, stop, dtype=np.int64) for start, stop in self.spans]
        )

    def copy(self, target: np.ndarray[Any, Any], source: np.ndarray[Any, Any]) -> None:
        """`source`: whole rows; `target`: rows of `width`. Casts on the way."""
        at = 0
        for start, stop in self.spans:
            np.copyto(target[:, at : at + stop - start], source[:, start:stop])
            at += stop - start
