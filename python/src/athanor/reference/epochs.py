"""Where epochs begin in a run of segments (docs/reference/order.md, "Mixtures and segments", Epochs).

>>> epochs = Epochs(run)
>>> epochs.begin(2), epochs.epoch_of(40)
"""

from __future__ import annotations

from typing import NamedTuple

from .segments import Run


class Span(NamedTuple):
    """From `start` on epochs have one length; `into` samples of `epoch` are done there."""

    start: int
    epoch: int
    into: int
    length: int


class Epochs:
    """`spans`, `batches` ((start, G)): one of each a segment."""

    def __init__(self, run: Run) -> None:
        self.last = run.segments[0].last
        self.batches = [(segment.start, segment.global_batch) for segment in run.segments]
        self.spans: list[Span] = []
        for segment in run.segments:
            length = run.length(segment)
            epoch = into = 0
            if self.spans:
                before = self.spans[-1]
                epochs, into = divmod(before.into + segment.start - before.start, before.length)
                epoch = before.epoch + epochs
            self.spans.append(Span(segment.start, epoch, min(into, length), length))

    def begin(self, epoch: int) -> int:
        """B(e): the first border at or after the position at which the samples of epoch e − 1 are done."""
        for i, span in enumerate(self.spans):
            done = span.start + (epoch - span.epoch) * span.length - span.into
            if i + 1 == len(self.spans) or done < self.spans[i + 1].start:
                break
        done = max(done, self.spans[0].start)
        if self.last == "pad":
            return done
        start, size = self.batches[i]
        return start + max(0, -(-(done - start) // size)) * size

    def epoch_of(self, position: int) -> int:
        """The greatest e with B(e) ≤ position."""
        at = position
        if self.last != "pad":
            start, size = next(batch for batch in reversed(self.batches) if batch[0] <= position)
            at = position - (position - start) % size
        span = next(span for span in reversed(self.spans) if span.start <= at)
        return span.epoch + (span.into + at - span.start) // span.length
