"""Memory of tensors for batches, and how it is filled.

Torch's own copies cost half as much of the interpreter as numpy's into a tensor. But torch shares what has more than
32 768 values among its threads, which then spin for the next such work: those would be the trainer's cores.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch

from ._columns import Array, Copy, Factory

TORCH = {
    np.dtype(np.int64): torch.int64,
    np.dtype(np.int32): torch.int32,
    np.dtype(np.float32): torch.float32,
    np.dtype(np.bool_): torch.bool,
}
_ONE_THREAD = 32_768


class Plain(Factory):
    def __call__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[Any, Array]:
        tensor = torch.empty(shape, dtype=TORCH[dtype])
        return tensor, tensor.numpy()

    def caster(self, source: Array, dtype: np.dtype[Any]) -> Copy:
        copy = functools.partial(torch.from_numpy(source).to, TORCH[dtype], False, True)
        return _alone(copy, source.size, super().caster(source, dtype))

    def picker(self, table: Array, numbers: Array) -> Copy:
        # A number of 2^31 and more is negative there: no row either.
        signed = torch.from_numpy(numbers.view(np.int32))
        copy = functools.partial(torch.index_select, torch.from_numpy(table), 0, signed)
        return _alone(copy, len(numbers) * table.shape[1], super().picker(table, numbers))


class Pinned(Factory):
    """So that `.to(device, non_blocking=True)` overlaps with the step; torch caches such memory."""

    def __call__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[Any, Array]:
        tensor = torch.empty(shape, dtype=TORCH[dtype], pin_memory=True)
        return tensor, tensor.numpy()


def _alone(copy: Copy, values: int, other: Copy) -> Copy:
    """`copy` where torch does it in this thread, else `other`."""
    if values <= _ONE_THREAD:
        return copy
    return lambda: copy() if torch.get_num_threads() == 1 else other()


PLAIN = Plain()
PINNED = Pinned()
