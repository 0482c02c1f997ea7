"""Which row of which source is served at which position, through plain and mixed segments (docs/reference/order.md,
"Mixtures and segments").

Pure arithmetic over a run: no samples, no files.

>>> Rows(run).row(17)
Row(source=0, epoch=0, lane=1, row=8)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..errors import error
from .chance import I64
from .epochs import Epochs, Span
from .mixture import Turns
from .passes import lane_samples
from .segments import Joined, Run, Segment, whole_batches


class Row(NamedTuple):
    """`source`: its number. `epoch`: the pass over it."""

    source: int
    epoch: int
    lane: int
    row: int


class Rows:
    """The endless sequence of a run."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._parts: list[Plain | Mixed] = []
        for i, (segment, mixed) in enumerate(zip(run.segments, run.mixed())):
            before = self._parts[-1] if i > 0 else None
            if mixed and isinstance(before, Mixed) and before.goes_on(segment):
                continue  # another G alone changes no sample
            if not mixed:
                self._parts.append(Plain(run, segment, before if isinstance(before, Plain) else None))
            elif isinstance(before, Mixed):
                self._parts.append(Mixed(run, segment, *before.at(segment.start)))
            else:
                chains = {} if before is None else before.chain(segment.start)
                self._parts.append(Mixed(run, segment, chains, {}))

    @cached_property
    def epochs(self) -> Epochs:
        """Plain: the passes. Mixed: by the samples of all sources of the segment."""
        run = self.run
        spans: list[Span] = []
        plain = [part for part in self._parts if isinstance(part, Plain)]
        for part, after in zip(plain, [*plain[1:], None]):
            spans += [span for span in part.spans() if after is None or span.start < after.start]
        for segment, mixed in zip(run.segments, run.mixed()):
            if mixed:
                spans = [span for span in spans if span.start < segment.start]
                length = run.length(segment)
                epoch, into = spans[-1].at(segment.start) if spans else (0, 0)
                spans.append(Span(segment.start, epoch, min(into, length), length))
        batches = [(segment.start, segment.global_batch) for segment in run.segments]
        return Epochs(spans, batches, run.segments[0].last)

    def part(self, position: int) -> Plain | Mixed:
        for part in reversed(self._parts):
            if part.start <= position:
                return part
        raise IndexError(f"position must be at least {self._parts[0].start}, got {position}")

    def plain(self, position: int) -> Plain:
        """The plain segment that a position lies in, or behind."""
        part = self.part(position)
        if not isinstance(part, Plain):
            raise IndexError(f"position must lie in a plain segment, got {position}")
        return part

    def row(self, position: int) -> Row:
        return self.part(position).row(position)

    def lane(self, position: int) -> int:
        """The lane that a position counts for when a step is dealt."""
        part = self.part(position)
        return (position - part.start) % part.lanes if isinstance(part, Mixed) else part.row(position).lane

    def serves(self, source: int, position: int) -> bool:
        """Is anything of a source served from a position on?"""
        ends = [*(part.start for part in self._parts[1:]), None]
        return any(
            part.serves(source, max(position, part.start), end)
            for part, end in zip(self._parts, ends)
            if end is None or position < end
        )


class Plain:
    """A segment of one source that continues one of the same name: by pass and place."""

    def __init__(self, run: Run, segment: Segment, before: Plain | None) -> None:
        self.start = segment.start
        self._run = run
        self._number = segment.sources[0]
        self._length = whole_batches(run.sources[self._number].samples, segment)
        # The pass in progress: `head` more places of it.
        self._old, self._epoch, self._place = (self._number, 0, 0) if before is None else before.at(self.start)
        left = run.sources[self._old].samples - self._place
        if segment.last == "drop":
            left -= left % segment.global_batch
        self._head = left if self._place > 0 else 0

    def at(self, position: int) -> tuple[int, int, int]:
        """(source, pass, place) of a position."""
        ahead = position - self.start
        if ahead < self._head:
            return self._old, self._epoch, self._place + ahead
        epochs, place = divmod(ahead - self._head, self._length)
        return self._number, self._epoch + (self._place > 0) + epochs, place

    def spans(self) -> list[Span]:
        """Its epochs: the passes."""
        place = self._place
        first = Span(self.start, self._epoch, place, place + self._head)
        then = Span(self.start + self._head, self._epoch + (place > 0), 0, self._length)
        return [first, then] if self._head > 0 else [then]

    def row(self, position: int) -> Row:
        number, epoch, place = self.at(position)
        row, lane = divmod(place, self._run.sources[number].how.lanes)
        return Row(number, epoch, lane, row)

    def serves(self, source: int, start: int, end: int | None) -> bool:
        """Is anything of a source served in [start, end)?"""
        then = self.start + self._head
        if source == self._old and start < then:
            return True
        return source == self._number and (end is None or max(start, then) < end)

    def chain(self, position: int) -> dict[str, list[Link]]:
        """What mixed segments go on with from a position: the view in progress, and one that waits for its pass."""
        number, epoch, place = self.at(position)
        joined = self._run.sources[number]
        lanes = np.arange(joined.how.lanes)
        done = np.maximum(0, -(-(place - lanes) // joined.how.lanes))
        links = [Link(number, epoch, epoch * _lane_rows(joined) + done, place > 0)]
        if number != self._number:
            new = self._run.sources[self._number]
            links.append(Link(self._number, epoch + 1, (epoch + 1) * _lane_rows(new), False))
        return {joined.name: links}


@dataclass(frozen=True)
class Link:
    """A view of a source among the lanes of a mixture: its first pass, and the first row of each of its lanes."""

    number: int
    epoch: int
    start: I64
    begun: bool


class Mixed:
    """A segment of several sources, or behind one. `counts`: rows of each source name that the lanes have served."""

    def __init__(self, run: Run, segment: Segment, chains: dict[str, list[Link]], counts: dict[str, I64]) -> None:
        self.start = segment.start
        self.lanes = segment.lanes
        self._run = run
        self._mix = segment.sources, segment.weights
        self._names = run.names(segment)
        self._turns = Turns(segment.weights)
        self._chains = {name: list(links) for name, links in chains.items()}
        lanes = next((len(rows) for rows in counts.values()), self.lanes)  # those of the mixture
        self._counts = {name: counts.get(name, np.zeros(self.lanes, np.int64)) for name in {*counts, *self._names}}
        for name, number in zip(self._names, segment.sources):
            self._refuse_uneven(run.sources[number], lanes)
            links = self._chains.setdefault(name, [])
            if not links or links[-1].number != number:
                epoch = 0 if not links else self._free_pass(name)
                if links and links[-1].epoch == epoch:
                    links.pop()
                if not links or links[-1].number != number:
                    links.append(Link(number, epoch, epoch * _lane_rows(run.sources[number]), False))
            for link in links:
                self._refuse_uneven(run.sources[link.number], lanes)

    def _refuse_uneven(self, joined: Joined, lanes: int) -> None:
        """Lanes of a mixture take rows of a source's lanes in turn: one that does not divide, or is empty, has none."""
        samples, own = joined.samples, joined.how.lanes
        if self.lanes == lanes and lanes % own == 0 and own <= samples:
            return
        raise error(
            "ATH_ORDER_OPTION",
            f"source {joined.name} cannot be mixed: {samples} samples in {own} lanes, among the {self.lanes} of a "
            f"segment and {lanes} of the mixture",
            remedy="begin a new order (override=True), with fewer `lanes`",
        )

    def goes_on(self, segment: Segment) -> bool:
        return self._mix == (segment.sources, segment.weights)

    def at(self, position: int) -> tuple[dict[str, list[Link]], dict[str, I64]]:
        """Chains and counts at a position: what the next segment goes on with."""
        lanes = np.arange(self.lanes)
        rows = np.maximum(0, -(-(position - self.start - lanes) // self.lanes))
        counts = dict(self._counts)
        for i, name in enumerate(self._names):
            counts[name] = counts[name] + self._turns.count(i, lanes + rows) - self._turns.count(i, lanes)
        return self._chains, counts

    def serves(self, source: int, start: int, end: int | None) -> bool:
        """Is anything of a source served in [start, end)?"""
        name = self._run.sources[source].name
        if name not in self._names:
            return False
        served, due = self.at(start)[1][name], None if end is None else self.at(end)[1][name]
        before = np.zeros(self.lanes, np.int64)
        links = self._chains[name]
        for link, after in zip(links, [*links[1:], None]):
            behind = None if after is None else before + self._room(link, after.epoch)
            if link.number == source:
                first = np.maximum(served, before)
                ends = [bound for bound in (due, behind) if bound is not None]
                if not ends or (first < np.minimum.reduce(ends)).any():
                    return True
            if behind is not None:
                before = behind
        return False

    def row(self, position: int) -> Row:
        j, lane = divmod(position - self.start, self.lanes)
        i = self._turns.source(j + lane)
        name = self._names[i]
        k = int(self._counts[name][lane]) + int(self._turns.count(i, j + lane) - self._turns.count(i, lane))
        links = self._chains[name]
        for link, after in zip(links, [*links[1:], None]):
            room = None if after is None else int(self._room(link, after.epoch)[lane])
            if room is None or k < room:
                break
            k -= room
        joined = self._run.sources[link.number]
        m = lane % joined.how.lanes
        x = int(link.start[m]) + lane // joined.how.lanes + k * (self.lanes // joined.how.lanes)
        epoch, row = divmod(x, lane_samples(joined.samples, joined.how.lanes, m))
        return Row(link.number, epoch, m, row)

    def _room(self, link: Link, epoch: int) -> I64:
        """How many rows each lane takes of a view that ends where pass `epoch` begins."""
        joined = self._run.sources[link.number]
        each, lanes = joined.how.lanes, np.arange(self.lanes)
        m = lanes % each
        left = epoch * _lane_rows(joined)[m] - link.start[m] - lanes // each
        return np.asarray(np.maximum(0, -(-left // (self.lanes // each))))

    def _free_pass(self, name: str) -> int:
        """The first pass of which, and behind which, no lane has served a row of the last view of `name`."""
        *earlier, link = self._chains[name]
        served = self._counts[name]
        for before, after in zip(earlier, [*earlier[1:], link]):
            served = served - self._room(before, after.epoch)
        joined = self._run.sources[link.number]
        each, lanes = joined.how.lanes, np.arange(self.lanes)
        m = lanes % each
        last = link.start[m] + lanes // each + (served - 1) * (self.lanes // each)
        passes: list[int] = (last // np.maximum(_lane_rows(joined), 1)[m] + 1)[served > 0].tolist()
        return max([link.epoch + link.begun, *passes])


def _lane_rows(joined: Joined) -> I64:
    """R of each lane."""
    return np.array([lane_samples(joined.samples, joined.how.lanes, m) for m in range(joined.how.lanes)], np.int64)
