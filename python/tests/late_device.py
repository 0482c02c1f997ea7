"""A device made of this machine's memory, whose work is done as late as a GPU may do it: at once, or only when somebody
waits for it. What nobody waits for is read as it was before (POISON)."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

POISON = 0x5A


class LateMark:
    def __init__(self, device: LateDevice, end: int) -> None:
        self._device = device
        self._end = end

    def query(self) -> bool:
        self._device.pass_time()
        return self._device.done >= self._end

    def synchronize(self) -> None:
        self._device.synced += 1
        self._device.work_to(self._end)


class LateDevice:
    """`progress`: pieces of work that it does, at most, between two calls (0: none but those that are waited for).
    `refusal`: why it registers nothing."""

    def __init__(self, progress: int = 0, seed: int = 0, refusal: str | None = None) -> None:
        self.done = 0
        self.synced = 0
        self.registered: list[int] = []  # now, by address
        self.registrations = 0
        self.in_use: list[Any] = []  # tensors that the user's stream was told of
        self.outside = 0  # calls outside the side stream
        self._queue: list[Callable[[], object]] = []
        self._waited = 0
        self._progress = progress
        self._random = random.Random(seed)
        self._refusal = refusal
        self._held: list[Any] = []
        self._inside = False

    def register(self, memory: torch.Tensor) -> str | None:
        if self._refusal is None:
            self.registered.append(memory.data_ptr())
            self.registrations += 1
        return self._refusal

    def unregister(self, memory: torch.Tensor) -> None:
        memory[0].item()  # still mapped, or this ends the process
        if self.done < len(self._queue):
            raise RuntimeError("unregistered under a copy")
        self.registered.remove(memory.data_ptr())

    @contextlib.contextmanager
    def side(self) -> Iterator[None]:
        self._inside = True
        try:
            yield
        finally:
            self._inside = False

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        self.outside += not self._inside
        tensor = torch.empty(shape, dtype=dtype)
        tensor.view(-1).view(torch.uint8).fill_(POISON)
        self._held.append(tensor)
        return tensor

    def staging(self, size: int) -> torch.Tensor:
        return torch.empty((size,), dtype=torch.uint8)

    def run(self, work: Callable[[], object]) -> None:
        self.outside += not self._inside
        self._queue.append(work)
        self.pass_time()

    def mark(self) -> LateMark:
        return LateMark(self, len(self._queue))

    def hand_over(self, mark: LateMark, tensors: Iterable[torch.Tensor]) -> None:
        if self._inside:
            raise RuntimeError("the side stream would wait for itself")
        self._waited = max(self._waited, mark._end)
        self.in_use += tensors

    def holds(self, tensor: torch.Tensor) -> bool:
        return any(tensor.untyped_storage().data_ptr() == held.untyped_storage().data_ptr() for held in self._held)

    def settle(self) -> None:
        self.work_to(len(self._queue))

    # -- what a test does

    def pass_time(self) -> None:
        if self._progress:
            self.work_to(min(len(self._queue), self.done + self._random.randint(0, self._progress)))

    def work_to(self, end: int) -> None:
        while self.done < end:
            self._queue[self.done]()
            self._queue[self.done] = lambda: None  # lets go of its tensors
            self.done += 1

    def read(self) -> None:
        """The user's stream works on the batches that it has: behind what it was told to wait for, and no later."""
        self.work_to(self._waited)
