"""A rank's accelerator as batches need it, and what one batch costs there: one copy of a slot's compact columns, one
kernel a column.

The copy reads the slot itself where its memory could be registered, else a pinned copy of it. Integers are widened and
masks made on the device, so that a sample of 512 ids and its mask are 2 KiB on the bus and not 8. Memory of a batch
is fresh: it belongs to the user.

    side stream     copy of slot n ─▶ `copied` ─▶ widen ─▶ `ready`      copy of slot n + 1 ─▶ …
    this process                      gives the slot back
    user's stream                                        waits, then reads the batch
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from . import _layout as layout
from ._columns import Column
from ._segment import Segment
from ._tensors import TORCH

Tensor = Any  # torch.Tensor, for whoever checks types without torch

# Lengths are checked to be at most the width; torch has few kernels for uint32.
_TORCH = {**TORCH, np.dtype("<u4"): torch.int32}


class Mark(Protocol):
    """A point in the side stream's work (torch.cuda.Event)."""

    def query(self) -> bool:
        """Is all work before it done?"""

    def synchronize(self) -> None:
        """Sleeps until it is."""


class Device(Protocol):
    """One accelerator and one side stream of it. `_cuda.Cuda` is the real one; tests have one that is late."""

    def register(self, memory: Tensor) -> str | None:
        """Pins memory of this process for copies that need no processor. Returns why it cannot be, None when it is."""

    def unregister(self, memory: Tensor) -> None: ...

    def side(self) -> AbstractContextManager[Any]:
        """Inside, `empty` and `run` mean the side stream."""

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Tensor:
        """Memory of the device."""

    def staging(self, size: int) -> Tensor:
        """Pinned bytes of this process, not given to others before the copies that read them are done."""

    def run(self, work: Callable[[], object]) -> None:
        """Begins work on tensors, which ends later."""

    def mark(self) -> Mark:
        """Behind all work so far."""

    def hand_over(self, mark: Mark, tensors: Iterable[Tensor]) -> None:
        """The stream on which the user works now waits for the mark; the tensors are in use there."""

    def holds(self, tensor: Tensor) -> bool:
        """Is it in memory of the device?"""

    def settle(self) -> None:
        """Waits until the side stream has nothing to do."""


class Sent(NamedTuple):
    """A batch on its way: it may be read behind `ready`, its slot be written behind `copied` (None: already now)."""

    batch: dict[str, Tensor]
    copied: Mark | None
    ready: Mark


class Sender:
    """Sends slots of one segment. `refused`: why its memory is not registered, None if it is."""

    def __init__(self, device: Device, segment: Segment, columns: list[Column], rows: int) -> None:
        self._device = device
        self._parts = [_Part(device, column, rows) for column in columns]
        self._start = min(part.start for part in self._parts)
        self._size = max(part.end for part in self._parts) - self._start
        memory = torch.frombuffer(segment.map, dtype=torch.uint8)
        self._memory: Tensor | None = memory
        self._slots: list[Tensor] = []
        for slot in range(segment.slots):
            at = layout.HEADER_BYTES + slot * segment.slot_bytes + self._start
            self._slots.append(memory[at : at + self._size])
        self.refused = device.register(memory)

    def send(self, slot: int) -> Sent:
        device = self._device
        source = self._slots[slot]
        with device.side():
            if self.refused is not None:
                staged = device.staging(self._size)
                staged.copy_(source)
                source = staged
            raw = device.empty((self._size,), torch.uint8)
            batch = {part.name: device.empty(part.shape, part.dtype) for part in self._parts}
            device.run(lambda: raw.copy_(source, non_blocking=True))
            copied = device.mark() if self.refused is None else None
            device.run(lambda: self._widen(raw, batch))
            return Sent(batch, copied, device.mark())

    def _widen(self, raw: Tensor, batch: dict[str, Tensor]) -> None:
        for part in self._parts:
            part.widen(raw[part.start - self._start : part.end - self._start], batch[part.name])

    def leave(self) -> None:
        """In a forked child: no word to the device, which is the parent's."""
        self._memory, self._slots = None, []

    def close(self) -> None:
        """Idempotent. Before the segment is unmapped: torch does not keep it mapped for its tensors."""
        if self._memory is None:
            return
        memory, self._memory, self._slots = self._memory, None, []
        try:
            self._device.settle()
        finally:
            if self.refused is None:
                self._device.unregister(memory)


class _Part:
    """One column: where it lies in a slot and what is made of it."""

    def __init__(self, device: Device, column: Column, rows: int) -> None:
        self.name = column.name
        self.dtype = _TORCH[column._target]
        self._source = _TORCH[column._source]
        self._mask = column._mask
        self._cut = column._cut
        stored = (rows,) if column._mask or column.scalar else (rows, column.width)
        self._stored = stored
        self.shape = stored if column.scalar and not column._mask else (rows, column._cut.width)
        self.start = column._offset
        self.end = self.start + int(np.prod(stored)) * column._source.itemsize
        self._positions: Tensor = None
        if column._mask:
            with device.side():
                positions = self._positions = device.empty(self._cut.positions.shape, torch.int32)
                here = torch.from_numpy(self._cut.positions.astype(np.int32))
                device.run(lambda: positions.copy_(here))

    def widen(self, raw: Tensor, target: Tensor) -> None:
        source = raw.view(self._source).view(self._stored)
        if self._mask:
            target.copy_(self._positions < source[:, None])
        elif self._cut.whole:
            target.copy_(source)
        else:
            at = 0
            for start, stop in self._cut.spans:
                target[:, at : at + stop - start].copy_(source[:, start:stop])
                at += stop - start


def put(device: Device, batch: dict[str, Any]) -> dict[str, Any]:
    """Sends what was made in this process (identities, places of packed rows) behind the rest of its batch."""
    late = {name: value for name, value in batch.items() if torch.is_tensor(value) and not device.holds(value)}
    if not late:
        return batch
    with device.side():
        sent = {name: device.empty(tuple(value.shape), value.dtype) for name, value in late.items()}
        device.run(lambda: [sent[name].copy_(value, non_blocking=True) for name, value in late.items()])
        ready = device.mark()
    device.hand_over(ready, sent.values())
    return {**batch, **sent}
