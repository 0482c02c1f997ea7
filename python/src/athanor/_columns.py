"""Columns of a slot, and their one copy out: with cast into memory that belongs to the user.

storage i32 | i64 | f32   rows × width values, padded already   → int64 / float32 [rows, width] ([rows] if scalar)
storage prefix | length   one u32 a row                        → int64 [rows, width]: that many ones, then zeros

With context parallelism `width` is that of this rank's slices. Scalars are never cut.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any

import numpy as np

from . import _layout as layout
from ._slices import Slices
from .errors import AthanorError

Array = np.ndarray[Any, np.dtype[Any]]
# Makes memory of (shape, dtype): what the user gets, and the numpy view through which it is filled.
Factory = Callable[[tuple[int, ...], "np.dtype[Any]"], tuple[Any, Array]]

_STORAGE: dict[str, np.dtype[Any]] = {
    "i32": np.dtype("<i4"),
    "i64": np.dtype("<i8"),
    "f32": np.dtype("<f4"),
    "prefix": np.dtype("<u4"),
    "length": np.dtype("<u4"),
}
_DELIVERED: dict[str, np.dtype[Any]] = {"int64": np.dtype(np.int64), "float32": np.dtype(np.float32)}
# (1025 × 1024) int64 are 8 MiB; a longer row is compared with its positions instead.
_TABLE_WIDTH = 1024
_tables: dict[tuple[int, tuple[tuple[int, int], ...]], Array] = {}


class Column:
    """One column of the agent's answer. Raises ATH_PROTOCOL for what this client cannot hold in a slot."""

    def __init__(self, spec: dict[str, Any], slot_bytes: int, batch_size: int, slices: Slices) -> None:
        try:
            self.name: str = spec["name"]
            storage: str = spec["storage"]
            self.width = int(spec["width"])
            self.scalar = bool(spec["scalar"])
            self._offset = int(spec["offset"])
            self._source = _STORAGE[storage]
            self._target = _DELIVERED[spec["dtype"]]
        except (KeyError, TypeError, ValueError) as error:
            raise AthanorError(
                "ATH_PROTOCOL",
                f"the agent described a column that this client cannot read: {spec}",
                remedy="install the same version of agent and client",
            ) from error
        # Scalars are not cut: they are as wide as they are.
        self._cut = Slices(self.width, 0, 1, "contiguous") if slices.whole or self.scalar else slices
        self._mask = storage in ("prefix", "length")
        values = 1 if self._mask else self.width
        end = self._offset + batch_size * values * self._source.itemsize
        if self._offset < layout.SLOT["identities"] + batch_size * layout.IDENTITY_BYTES or end > slot_bytes:
            raise AthanorError(
                "ATH_PROTOCOL",
                f"column {self.name} does not fit a slot of {slot_bytes} bytes: {spec}",
                remedy="install the same version of agent and client",
            )
        self._views: list[Array] = []

    def map(self, memory: mmap.mmap, starts: list[int], batch_size: int) -> None:
        shape = (batch_size,) if self._mask or self.scalar else (batch_size, self.width)
        count = int(np.prod(shape))
        self._views = [
            np.frombuffer(memory, self._source, count, start + self._offset).reshape(shape) for start in starts
        ]

    def unmap(self) -> None:
        self._views = []

    def take(self, factory: Factory, slot: int, rows: int) -> Any:
        source = self._views[slot][:rows]
        cut = self._cut
        if not self._mask:
            if cut.whole:
                given, target = factory(source.shape, self._target)
                np.copyto(target, source)
            else:
                given, target = factory((rows, cut.width), self._target)
                cut.copy(target, source)
            return given
        given, target = factory((rows, cut.width), self._target)
        self.check(slot, rows)
        if self.width <= _TABLE_WIDTH and self._target == np.int64:
            # mode="clip" writes straight into `out`; "raise" would go through a buffer. The range was checked above.
            np.take(_table(self.width, cut), source, axis=0, out=target, mode="clip")
        else:
            target[...] = cut.positions < source[:, None]
        return given

    def check(self, slot: int, rows: int) -> None:
        """Raises ATH_PROTOCOL for lengths beyond the width."""
        longest = int(self._views[slot][:rows].max()) if self._mask else 0
        if longest > self.width:
            raise AthanorError(
                "ATH_PROTOCOL",
                f"column {self.name}: length {longest} in a width of {self.width}",
                remedy="end the agent and start again",
            )


def _table(width: int, cut: Slices) -> Array:
    """Row n: n ones, then zeros; of these what is cut out."""
    key = (width, cut.spans)
    table = _tables.get(key)
    if table is None:
        table = np.ascontiguousarray(np.tri(width + 1, width, -1, dtype=np.int64)[:, cut.positions])
        _tables[key] = table
    return table
