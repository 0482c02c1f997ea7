"""Where epochs begin in a run of segments (docs/reference/order.md, "Mixtures and segments", Epochs).

>>> epochs = Epochs([Span(0, 0, 0, 100)], [(0, 24)], "carry")
>>> epochs.begin(2), epochs.epoch_of(120)
(216, 1)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Span(NamedTuple):
    """From `start` on epochs have one length; `into` samples of `epoch` are done there."""

    start: int
    epoch: int
    into: int
    length: int

    def at(self, position: int) -> tuple[int, int]:
        """(epoch, samples of it that are done)."""
        epochs, into = divmod(self.into + position - self.start, self.length)
        return self.epoch + epochs, into


class Epochs:
    """`batches`: (start, G)."""

    def __init__(self, spans: Sequence[Span], batches: Sequence[tuple[int, int]], last: str) -> None:
        self.spans = spans
        self.batches = batches
        self.last = last

    def begin(self, epoch: int) -> int:
        """B(e): the first border at or after the position at which the samples of epoch e − 1 are done."""
        for i, span in enumerate(self.spans):
            done = span.start + (epoch - span.epoch) * span.length - span.into
            if i + 1 == len(self.spans) or done < self.spans[i + 1].start:
                break
        done = max(done, self.spans[0].start)
        if self.last == "pad":
            return done
        start, size = self._batch(done)
        return start + -(-(done - start) // size) * size

    def epoch_of(self, position: int) -> int:
        """The greatest e with B(e) ≤ position."""
        at = position
        if self.last != "pad":
            start, size = self._batch(position)
            at = position - (position - start) % size
        return [span for span in self.spans if span.start <= at][-1].at(at)[0]

    def _batch(self, position: int) -> tuple[int, int]:
        return [batch for batch in self.batches if batch[0] <= position][-1]
