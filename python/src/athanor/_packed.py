"""Packed rows: where the documents of a row begin, as attention kernels want it (`sample_rule="pack"`).

    row of 8:      a a a b b . . .        (`.`: padding)
    position_ids   0 1 2 0 1 0 1 2
    cu_seqlens     0     3   5     8      (of a batch: over its rows one behind the other, then the last value again)

The padding behind a row's documents is a sequence of its own: the sequences cover all B × L places, so that no kernel
leaves a place unwritten, and no document sees padding.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._columns import Array, Factory

DOCUMENTS = "document_lengths"


class Packed:
    """What a loader makes of the lengths of documents that come with packed rows; of other batches nothing."""

    def __init__(self, sample_rule: str | None, mode: str, max_length: int, padding: str, cp_size: int) -> None:
        self.wanted = sample_rule == "pack"
        self._max_length = max_length
        self._places: Array | None = None
        if sample_rule not in ("split", "pack"):
            return
        if mode == "none":
            raise ValueError(
                f'sample_rule must be left out with agent="none", which makes no rows of pieces, got {sample_rule!r}'
            )
        if self.wanted and padding == "longest":
            raise ValueError('padding must be "max_length" with sample_rule="pack", got "longest"')
        if self.wanted and cp_size > 1:
            raise ValueError(
                'sample_rule must not be "pack" with context parallelism, where a rank has slices of each row'
            )

    def add(self, batch: dict[str, Any], factory: Factory) -> None:
        """`position_ids` int64 [B, L], `cu_seqlens` int32 [B * (M + 1) + 1], `max_seqlen`. M: most documents a row."""
        if not self.wanted or DOCUMENTS not in batch:
            return
        lengths = np.asarray(batch.pop(DOCUMENTS))
        rows, most = lengths.shape
        width = self._max_length
        ends = np.empty((rows, most + 1), np.int64)
        np.cumsum(lengths, axis=1, out=ends[:, :most])
        ends[:, most] = width
        # Borders of all rows, one behind the other; unused places of a row repeat the last border before them.
        borders = (ends + np.arange(rows)[:, None] * width).reshape(-1)
        starts = np.concatenate(([0], borders[:-1]))
        real = borders > starts
        given, target = factory((len(borders) + 1,), np.dtype(np.int32))
        target[0] = 0
        count = int(np.count_nonzero(real))
        target[1 : count + 1] = borders[real]
        target[count + 1 :] = rows * width
        batch["cu_seqlens"] = given
        batch["max_seqlen"] = int((borders - starts).max())
        given, target = factory((rows, width), np.dtype(np.int64))
        firsts = starts[real]
        if self._places is None or len(self._places) < rows * width:
            self._places = np.arange(rows * width)
        flat = target.reshape(-1)
        np.subtract(self._places[: rows * width], np.repeat(firsts, borders[real] - firsts), out=flat)
        batch["position_ids"] = given

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_places": None}
