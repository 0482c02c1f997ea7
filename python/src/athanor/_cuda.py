"""An NVIDIA GPU through torch, behind `_device.Device`.

torch has no call to register memory of others but the runtime's own (`torch.cuda.cudart()`). It also has none to forget
an error that such a call met: the runtime then tells the next kernel launch of it, whosever that is.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import Any

import torch

from ._device import Mark, Tensor

log = logging.getLogger("athanor")

cuda: Any = torch.cuda  # much of it has no types
_PORTABLE = 1  # cudaHostRegisterPortable: pinned for all devices of this process
# Kernels that widen are small. Before blocks of the step's own kernels they cost nothing, behind them a batch is late.
_PRIORITY = -1


class Cuda:
    """Raises ValueError where torch cannot use the device: no driver, no such number, a forked process."""

    def __init__(self, device: torch.device) -> None:
        try:
            cuda.init()
            self._open(device)
        except (RuntimeError, AssertionError) as error:
            raise ValueError(f"device must be one that torch can use in this process, got {device}: {error}") from error

    def _open(self, device: torch.device) -> None:
        index = cuda.current_device() if device.index is None else device.index
        self.name = torch.device("cuda", index)
        self._stream = cuda.Stream(self.name, priority=_PRIORITY)

    def register(self, memory: Tensor) -> str | None:
        with cuda.device(self.name):
            cudart = cuda.cudart()
            result = cudart.cudaHostRegister(memory.data_ptr(), memory.numel(), _PORTABLE)
            if int(result) == 0:
                return None
            reason = f"cudaHostRegister: {cudart.cudaGetErrorString(result)} ({int(result)})"
            self._forget_error()
            return reason

    def unregister(self, memory: Tensor) -> None:
        with cuda.device(self.name):
            result = cuda.cudart().cudaHostUnregister(memory.data_ptr())
            if int(result) != 0:  # at the end of a process whose GPU is lost, say
                log.debug("cudaHostUnregister: error %d", int(result))
                self._forget_error()

    def _forget_error(self) -> None:
        """A launch of our own is told of the error, and of nothing else."""
        with contextlib.suppress(RuntimeError):
            torch.full((1,), 1, device=self.name)

    def side(self) -> Any:
        return cuda.stream(self._stream)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=self.name)

    def staging(self, size: int) -> Tensor:
        # torch's cache of pinned memory knows the copies that read it.
        return torch.empty((size,), dtype=torch.uint8, pin_memory=True)

    def run(self, work: Callable[[], object]) -> None:
        work()

    def mark(self) -> Mark:
        event: Mark = cuda.Event(blocking=True)
        event.record(self._stream)  # type: ignore[attr-defined]
        return event

    def hand_over(self, mark: Any, tensors: Iterable[Tensor]) -> None:
        stream = cuda.current_stream(self.name)
        stream.wait_event(mark)
        for tensor in tensors:
            tensor.record_stream(stream)

    def holds(self, tensor: Tensor) -> bool:
        return bool(tensor.device == self.name)

    def settle(self) -> None:
        self._stream.synchronize()
