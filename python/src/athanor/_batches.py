"""Batch sizes as a user gives them: of a rank, of an optimizer step, and ramps of the latter.

A ramp says from how many samples on an optimizer batch has which size; an entry takes effect at the first optimizer
batch that starts at or after its count.

>>> batch_sizes(8, batch_size=4, global_batch_size=[(0, 256), (2_000_000, 1024)]).ramp
((0, 256), (2000000, 1024))
>>> megatron_ramp((32, 32, 1000), 128)      # --rampup-batch-size 32 32 1000 --global-batch-size 128
[(0, 32), (334, 64), (667, 96), (1000, 128)]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Union

from ._arguments import at_least_one

# Of a rank; the protocol takes no more.
_MOST_ROWS = 1 << 20
GlobalBatch = Union[int, Sequence[Sequence[int]]]


class BatchSizes(NamedTuple):
    """`grad_accum`, `global_batch`: of the first optimizer batch. `ramp`: (samples, G), one entry if G is constant."""

    batch_size: int
    grad_accum: int
    global_batch: int
    ramp: tuple[tuple[int, int], ...]


def batch_sizes(
    world: int,
    batch_size: int | None = None,
    global_batch_size: GlobalBatch | None = None,
    grad_accum: int | None = None,
    rampup_batch_size: Sequence[int] | None = None,
) -> BatchSizes:
    """Two of the three fix the third: global_batch_size = world × batch_size × grad_accum. `batch_size` alone means
    grad_accum 1. A ramp takes a batch_size; entries that a run has left need not fit it, so only the last is checked.
    Raises ValueError for what does not divide."""
    if rampup_batch_size is not None:
        global_batch_size = megatron_ramp(rampup_batch_size, global_batch_size)
    ramp = None if global_batch_size is None or isinstance(global_batch_size, int) else _ramp(global_batch_size)
    if ramp is not None and len(ramp) > 1:
        if grad_accum is not None:
            raise ValueError(f"grad_accum must be left out with a ramp (it follows from it), got {grad_accum!r}")
        if batch_size is None:
            raise ValueError("batch_size must be given with a ramp, got none")
        at_least_one("batch_size", batch_size, _MOST_ROWS)
        step = world * batch_size
        if ramp[-1][1] % step != 0:
            raise ValueError(
                f"global_batch_size must hold multiples of world_size × batch_size = {world} × {batch_size}, "
                f"got {ramp[-1][1]} from sample {ramp[-1][0]} on; nearest: {_nearest(ramp[-1][1], step)}"
            )
        return BatchSizes(batch_size, max(1, ramp[0][1] // step), ramp[0][1], ramp)
    whole = ramp[0][1] if ramp is not None else global_batch_size
    sizes = _constant(world, batch_size, whole, grad_accum)  # type: ignore[arg-type]
    at_least_one("batch_size", sizes[0], _MOST_ROWS)
    return BatchSizes(*sizes, ((0, sizes[2]),))


def megatron_ramp(rampup_batch_size: Sequence[int], global_batch_size: GlobalBatch | None) -> list[tuple[int, int]]:
    """Megatron's `--rampup-batch-size START INCREMENT SAMPLES` as a ramp up to `global_batch_size`."""
    try:
        start, increment, samples = (int(value) for value in rampup_batch_size)
    except (TypeError, ValueError):
        raise ValueError(f"rampup_batch_size must be (start, increment, samples), got {rampup_batch_size!r}") from None
    if not isinstance(global_batch_size, int) or isinstance(global_batch_size, bool):
        raise ValueError(
            "global_batch_size must be one number, the end of the ramp, with rampup_batch_size, "
            f"got {global_batch_size!r}"
        )
    if start < 1 or increment < 1 or samples < 1 or global_batch_size <= start:
        raise ValueError(
            "rampup_batch_size must be numbers of at least 1, the first below global_batch_size "
            f"({global_batch_size}), got {rampup_batch_size!r}"
        )
    increments, rest = divmod(global_batch_size - start, increment)
    if rest:
        raise ValueError(
            f"rampup_batch_size must lead from {start} to global_batch_size = {global_batch_size} in whole increments, "
            f"got {increment}"
        )
    if samples < increments:
        raise ValueError(f"rampup_batch_size must have at least a sample for each of {increments} steps, got {samples}")
    return [(-(-number * samples // increments), start + number * increment) for number in range(increments + 1)]


def _ramp(given: Sequence[Sequence[int]]) -> tuple[tuple[int, int], ...]:
    what = "global_batch_size must be a whole number, or a ramp of (samples, size) as [(0, 256), (2_000_000, 1024)]"
    try:
        entries = [(begin, size) for begin, size in given]
    except (TypeError, ValueError):
        raise ValueError(f"{what}, got {given!r}") from None
    if not entries:
        raise ValueError(f"{what}, got {given!r}")
    for number, (begin, size) in enumerate(entries):
        at_least_one(f"the size in entry {number} of global_batch_size", size)
        if not isinstance(begin, int) or isinstance(begin, bool) or begin < 0:
            raise ValueError(f"{what}, got {begin!r} samples in entry {number}")
        if number == 0 and begin != 0:
            raise ValueError(f"the ramp in global_batch_size must begin at 0 samples, got {begin}")
        if number > 0 and begin <= entries[number - 1][0]:
            raise ValueError(
                f"the ramp in global_batch_size must ascend in samples, got {begin} behind {entries[number - 1][0]}"
            )
    return tuple(entries)


def _constant(
    world: int, batch_size: int | None, global_batch_size: int | None, grad_accum: int | None
) -> tuple[int, int, int]:
    for name, value in (
        ("batch_size", batch_size),
        ("global_batch_size", global_batch_size),
        ("grad_accum", grad_accum),
    ):
        if value is not None:
            at_least_one(name, value)
    if batch_size is None:
        if global_batch_size is None:
            raise ValueError("batch_size must be given, or global_batch_size with grad_accum, got neither")
        accum = grad_accum if grad_accum is not None else 1
        if global_batch_size % (world * accum) != 0:
            raise ValueError(
                f"global_batch_size must be a multiple of world_size × grad_accum = {world} × {accum}, "
                f"got {global_batch_size}; nearest: {_nearest(global_batch_size, world * accum)}"
            )
        return global_batch_size // (world * accum), accum, global_batch_size
    step = world * batch_size
    if global_batch_size is None:
        accum = grad_accum if grad_accum is not None else 1
        return batch_size, accum, step * accum
    if grad_accum is None:
        if global_batch_size % step != 0:
            raise ValueError(
                f"global_batch_size must be a multiple of world_size × batch_size = {world} × {batch_size}, "
                f"got {global_batch_size}; nearest: {_nearest(global_batch_size, step)}"
            )
        return batch_size, global_batch_size // step, global_batch_size
    if global_batch_size != step * grad_accum:
        raise ValueError(
            f"global_batch_size must be world_size × batch_size × grad_accum = {world} × {batch_size} × {grad_accum} "
            f"= {step * grad_accum}, got {global_batch_size}; leave one of the three out"
        )
    return batch_size, grad_accum, global_batch_size


def _nearest(value: int, unit: int) -> str:
    low = value // unit * unit
    return f"{low + unit}" if low == 0 else f"{low} or {low + unit}"
