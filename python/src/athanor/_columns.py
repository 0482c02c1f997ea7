"""Columns of a slot, and their one copy out: with cast into memory that belongs to the user.

storage i32 | i64 | f32   rows × width values, padded already   → int64 / float32 [rows, width] ([rows] if scalar)
storage prefix | length   one u32 a row                        → int64 [rows, width]: that many ones, then zeros

With context parallelism `width` is that of this rank's slices. Scalars are never cut.
"""

from __future__ import annotations

import abc
import functools
import mmap
from collections.abc import Callable
from typing import Any

import numpy as np

from . import _layout as layout
from ._slices import Slices
from .errors import AthanorError

Array = np.ndarray[Any, np.dtype[Any]]
Copy = Callable[[], Any]
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


class Factory(abc.ABC):
    """Makes what the user gets: arrays or tensors, each in memory of its own."""

    @abc.abstractmethod
    def __call__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[Any, Array]:
        """Memory that is not filled, and the numpy view through which it is."""

    def caster(self, source: Array, dtype: np.dtype[Any]) -> Copy:
        """Copies `source`, as it is when called, with cast."""

        def cast() -> Any:
            given, target = self(source.shape, dtype)
            np.copyto(target, source)
            return given

        return cast

    def picker(self, table: Array, numbers: Array) -> Copy:
        """Copies the rows of `table` that `numbers` (u32) name when called. Raises IndexError for one that is none."""

        def pick() -> Any:
            if numbers.max() >= len(table):
                raise IndexError
            given, target = self((len(numbers), table.shape[1]), table.dtype)
            # mode="clip" writes straight into `out`; "raise" would go through a buffer.
            table.take(numbers, 0, target, "clip")
            return given

        return pick


class NumpyFactory(Factory):
    def __call__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[Any, Array]:
        array = np.empty(shape, dtype)
        return array, array

    def caster(self, source: Array, dtype: np.dtype[Any]) -> Copy:
        return functools.partial(source.astype, dtype)

    def picker(self, table: Array, numbers: Array) -> Copy:
        return functools.partial(table.take, numbers, 0)


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
        self._copies: list[Copy] = []
        self._copies_of: Factory | None = None

    def map(self, memory: mmap.mmap, starts: list[int], batch_size: int) -> None:
        self._rows = batch_size
        shape = (batch_size,) if self._mask or self.scalar else (batch_size, self.width)
        count = int(np.prod(shape))
        self._views = [
            np.frombuffer(memory, self._source, count, start + self._offset).reshape(shape) for start in starts
        ]

    def unmap(self) -> None:
        self._views = []
        self._copies = []
        self._copies_of = None

    def take(self, factory: Factory, slot: int, rows: int) -> Any:
        """The first `rows` rows of a slot, copied."""
        try:
            if rows != self._rows:
                return self._copier(factory, self._views[slot][:rows])()
            if self._copies_of is not factory:
                # What each copy needs to know is found once for each slot, not for each batch.
                self._copies = [self._copier(factory, view) for view in self._views]
                self._copies_of = factory
            return self._copies[slot]()
        except IndexError:
            raise self._too_long(slot, rows) from None

    def _copier(self, factory: Factory, source: Array) -> Copy:
        cut = self._cut
        if not self._mask:
            if cut.whole:
                return factory.caster(source, self._target)
            return functools.partial(self._cut_out, factory, source)
        if self.width <= _TABLE_WIDTH and self._target == np.int64:
            return factory.picker(_table(self.width, cut), source)
        return functools.partial(self._compared, factory, source)

    def _cut_out(self, factory: Factory, source: Array) -> Any:
        given, target = factory((len(source), self._cut.width), self._target)
        self._cut.copy(target, source)
        return given

    def check(self, slot: int, rows: int) -> None:
        """Raises ATH_PROTOCOL for lengths beyond the width."""
        if self._mask and self._views[slot][:rows].max() > self.width:
            raise self._too_long(slot, rows)

    def _compared(self, factory: Factory, source: Array) -> Any:
        if source.max() > self.width:
            raise IndexError
        given, target = factory((len(source), self._cut.width), self._target)
        target[...] = self._cut.positions < source[:, None]
        return given

    def _too_long(self, slot: int, rows: int) -> AthanorError:
        return AthanorError(
            "ATH_PROTOCOL",
            f"column {self.name}: length {self._views[slot][:rows].max()} in a width of {self.width}",
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
