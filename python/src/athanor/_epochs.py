"""Epochs and batch sizes: pure arithmetic over positions (design §4.4.5 and §4.4.6).

A position counts samples delivered globally. A step covers S = world × batch_size positions, an optimizer batch
G = S × grad_accum. Epochs consist of whole optimizer batches:

    carry   epoch e begins at from + ⌈e·N/G⌉·G       (an optimizer batch may hold the end of one epoch and the next one)
    drop    epoch e begins at from + e·⌊N/G⌋·G
    pad     epoch e begins at from + e·N; its last step holds fewer real rows

>>> Epochs(samples=100, global_batch=32, step=16, last="carry").steps(0)      # ⌈100/32⌉·32 / 16
8
"""

from __future__ import annotations

from typing import NamedTuple

from .errors import AthanorValueError


class BatchSizes(NamedTuple):
    batch_size: int
    grad_accum: int
    global_batch: int


def batch_sizes(
    world: int,
    batch_size: int | None = None,
    global_batch_size: int | None = None,
    grad_accum: int | None = None,
) -> BatchSizes:
    """Two of the three fix the third: global_batch_size = world × batch_size × grad_accum. `batch_size` alone means
    grad_accum 1. Raises ValueError for what does not divide."""
    for name, value in (
        ("batch_size", batch_size),
        ("global_batch_size", global_batch_size),
        ("grad_accum", grad_accum),
    ):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    if batch_size is None:
        if global_batch_size is None:
            raise ValueError("batch_size must be given, or global_batch_size with grad_accum, got neither")
        accum = grad_accum if grad_accum is not None else 1
        if global_batch_size % (world * accum) != 0:
            raise ValueError(
                f"global_batch_size must be a multiple of world_size × grad_accum = {world} × {accum}, "
                f"got {global_batch_size}; nearest: {_nearest(global_batch_size, world * accum)}"
            )
        return BatchSizes(global_batch_size // (world * accum), accum, global_batch_size)
    step = world * batch_size
    if global_batch_size is None:
        accum = grad_accum if grad_accum is not None else 1
        return BatchSizes(batch_size, accum, step * accum)
    if grad_accum is None:
        if global_batch_size % step != 0:
            raise ValueError(
                f"global_batch_size must be a multiple of world_size × batch_size = {world} × {batch_size}, "
                f"got {global_batch_size}; nearest: {_nearest(global_batch_size, step)}"
            )
        return BatchSizes(batch_size, global_batch_size // step, global_batch_size)
    if global_batch_size != step * grad_accum:
        raise ValueError(
            f"global_batch_size must be world_size × batch_size × grad_accum = {world} × {batch_size} × {grad_accum} "
            f"= {step * grad_accum}, got {global_batch_size}; leave one of the three out"
        )
    return BatchSizes(batch_size, grad_accum, global_batch_size)


def _nearest(value: int, unit: int) -> str:
    low = value // unit * unit
    return f"{low + unit}" if low == 0 else f"{low} or {low + unit}"


class Epochs:
    """Where epochs begin for one view, G, step and rule. Epochs of no length exist only with carry and N < G."""

    def __init__(self, samples: int, global_batch: int, step: int, last: str, start: int = 0) -> None:
        if global_batch % step != 0:
            raise AthanorValueError(
                "ATH_BATCH_ARITHMETIC",
                f"a step of {step} samples (world size × batch size) does not divide the optimizer batch of "
                f"{global_batch} samples that the order goes by",
                remedy=f"choose batch_size and world size whose product divides {global_batch}",
            )
        if samples < 1:
            raise AthanorValueError("ATH_ORDER_OPTION", "the data has no samples", remedy="look with `athanor inspect`")
        self.samples = samples
        self.global_batch = global_batch
        self.step = step
        self.last = last
        self.origin = start
        self.length = samples // global_batch * global_batch if last == "drop" else samples
        if self.length == 0:
            raise AthanorValueError(
                "ATH_ORDER_OPTION",
                f'last="drop" leaves nothing of {samples} samples: one optimizer batch is {global_batch}',
                remedy='use last="carry" or a smaller batch',
            )

    def begin(self, epoch: int) -> int:
        """First position of an epoch."""
        if self.last == "carry":
            return self.origin + -(-epoch * self.samples // self.global_batch) * self.global_batch
        return self.origin + epoch * self.length

    def epoch_of(self, position: int) -> int:
        """The epoch that a position lies in; a border belongs to the epoch that it begins."""
        ahead = position - self.origin
        if ahead < 0:
            raise ValueError(f"position must be at least {self.origin}, got {position}")
        if self.last == "carry":
            return ahead // self.global_batch * self.global_batch // self.samples
        return ahead // self.length

    def steps(self, epoch: int) -> int:
        """Steps of an epoch: the same number on all ranks."""
        return self.steps_left(self.begin(epoch), epoch)

    def steps_left(self, position: int, epoch: int) -> int:
        """Steps from a position to the end of its epoch. Raises ATH_BATCH_ARITHMETIC when steps do not fit."""
        left = self.begin(epoch + 1) - position
        inside = position - (self.begin(epoch) if self.last == "pad" else self.origin)
        if inside % self.step != 0:
            raise AthanorValueError(
                "ATH_BATCH_ARITHMETIC",
                f"position {position} lies inside a step of {self.step} samples (world size × batch size)",
                remedy=f"resume with a world size × batch size that divides {inside}, or from a state taken at the end "
                "of an optimizer batch",
            )
        return -(-left // self.step)

    def advance(self, position: int, steps: int) -> int:
        """The position after `steps` more steps."""
        if self.last != "pad":
            return position + steps * self.step
        while steps > 0:
            epoch = self.epoch_of(position)
            left = self.steps_left(position, epoch)
            if steps < left:
                return position + steps * self.step
            position = self.begin(epoch + 1)
            steps -= left
        return position
