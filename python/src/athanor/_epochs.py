"""Epochs: pure arithmetic over positions (docs/reference/order.md, "Mixtures and segments").

A position counts samples delivered globally. A step covers S = world × batch_size positions, an optimizer batch
G = S × grad_accum. Epochs consist of whole optimizer batches. For one source and one G:

    carry   epoch e begins at from + ⌈e·N/G⌉·G       (an optimizer batch may hold the end of one epoch and the next one)
    drop    epoch e begins at from + e·⌊N/G⌋·G
    pad     epoch e begins at from + e·N; its last step holds fewer real rows

In general A(e), where the samples of epoch e − 1 are done, lies in a span of epochs of one length, and epoch e begins
at the first border at or after A(e) of optimizer batches of one size. S never changes within a session.

>>> Epochs.of_one(samples=100, global_batch=32, step=16, last="carry").steps(0)      # ⌈100/32⌉·32 / 16
8
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

from .errors import AthanorValueError

log = logging.getLogger("athanor")


class EpochSpan(NamedTuple):
    """From `start` on epochs have one length; `into` samples of `epoch` are done there."""

    start: int
    epoch: int
    into: int
    length: int


class BatchSpan(NamedTuple):
    """From `start` on optimizer batches have one size."""

    start: int
    size: int


class Epochs:
    """Where epochs begin. Epochs of no length exist only with carry and fewer samples than an optimizer batch has.

    `spans`, `batches`: ascending, both from the same position on (fields `spans` and `batches` of the agent's answer).
    """

    def __init__(self, spans: Sequence[Sequence[int]], batches: Sequence[Sequence[int]], step: int, last: str) -> None:
        self.spans = [EpochSpan(*span) for span in spans]
        self.batches = [BatchSpan(*batch) for batch in batches]
        self.step = step
        self.last = last
        self.origin = self.spans[0].start
        self._span_starts = [span.start for span in self.spans]
        self._batch_starts = [batch.start for batch in self.batches]

    @classmethod
    def of_one(cls, samples: int, global_batch: int, step: int, last: str, start: int = 0) -> Epochs:
        """Of one source in one segment."""
        if samples < 1:
            raise AthanorValueError("ATH_ORDER_OPTION", "the data has no samples", remedy="look with `athanor inspect`")
        length = samples // global_batch * global_batch if last == "drop" else samples
        if length == 0:
            raise AthanorValueError(
                "ATH_ORDER_OPTION",
                f'last="drop" leaves nothing of {samples} samples: one optimizer batch is {global_batch}',
                remedy='use last="carry" or a smaller batch',
            )
        return cls([(start, 0, 0, length)], [(start, global_batch)], step, last)

    @classmethod
    def of_view(cls, view: dict[str, Any], step: int) -> Epochs:
        """What an agent's answer says."""
        epochs = view["epochs"]
        return cls(epochs["spans"], epochs["batches"], step, str(epochs["last"]))

    def begin(self, epoch: int) -> int:
        """B(e): first position of an epoch."""
        at = self._done(epoch)
        if self.last == "pad":
            return at
        start, size = self._batch(at)
        return start + -(-(at - start) // size) * size

    def epoch_of(self, position: int) -> int:
        """The epoch that a position lies in; a border belongs to the epoch that it begins."""
        if position < self.origin:
            raise ValueError(f"position must be at least {self.origin}, got {position}")
        at = position if self.last == "pad" else self.border(position)
        start, epoch, into, length = self.spans[bisect_right(self._span_starts, at) - 1]
        return epoch + (into + at - start) // length

    def batch_at(self, position: int) -> int:
        """G: samples of the optimizer batch that holds a position."""
        return self._batch(position).size

    def border(self, position: int) -> int:
        """Where the optimizer batch that holds a position begins (not for pad)."""
        start, size = self._batch(position)
        return position - (position - start) % size

    def steps(self, epoch: int) -> int:
        """Steps of an epoch: the same number on all ranks."""
        return -(-(self.begin(epoch + 1) - self.begin(epoch)) // self.step)

    def steps_left(self, position: int, epoch: int) -> int:
        """Steps from a position to the end of its epoch. Raises ATH_BATCH_ARITHMETIC when steps do not fit, here or in
        an optimizer batch further on."""
        for start, size in self.batches[bisect_right(self._batch_starts, position) - 1 :]:
            if size % self.step != 0:
                since = f" from position {start} on" if len(self.batches) > 1 else ""
                raise AthanorValueError(
                    "ATH_BATCH_ARITHMETIC",
                    f"a step of {self.step} samples (world size × batch size) does not divide the optimizer batch of "
                    f"{size} samples that the order goes by{since}",
                    remedy=f"choose batch_size and world size whose product divides {size}",
                )
        inside = position - (self.begin(epoch) if self.last == "pad" else self.border(position))
        if inside % self.step != 0:
            raise AthanorValueError(
                "ATH_BATCH_ARITHMETIC",
                f"position {position} lies inside a step of {self.step} samples (world size × batch size)",
                remedy=f"resume with a world size × batch size that divides {inside}, or from a state taken at the end "
                "of an optimizer batch",
            )
        return -(-(self.begin(epoch + 1) - position) // self.step)

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

    def _done(self, epoch: int) -> int:
        """A(e): where the samples of the epochs before e are done."""
        for span, after in zip(self.spans, [*self._span_starts[1:], None]):
            at = span.start + (epoch - span.epoch) * span.length - span.into
            if after is None or at < after:
                break
        return max(at, self.origin)  # the epoch in progress at the very first position began there

    def _batch(self, position: int) -> BatchSpan:
        return self.batches[max(0, bisect_right(self._batch_starts, position) - 1)]


def say_if_steps_change(rank: int, before: int, epochs: Epochs) -> None:
    """Nobody named G: it follows from the world size, and so from how many machines there are today."""
    now = epochs.batches[-1].size
    if now != before and rank == 0 and epochs.last != "pad":
        log.warning(
            "optimizer steps go from %d to %d samples with this state, as world size × batch size does; "
            "global_batch_size=%d keeps them",
            before,
            now,
            before,
        )
