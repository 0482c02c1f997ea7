"""What a run is made of: sources as they joined, and segments (docs/reference/order.md, "Mixtures and segments").

>>> web = Joined("web", "0123456789abcdef0123456789abcdef", 100, How("window", lanes=1, window=8, extent=1))
>>> Run(7, (web,), (Segment(0, (0,), (65536,), 1, "carry", 8),))
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import error
from .resolve import How


@dataclass(frozen=True)
class Joined:
    """A view as it joined. `view`: its fingerprint."""

    name: str
    view: str
    samples: int
    how: How


@dataclass(frozen=True)
class Segment:
    """From position `start` on: sources by number, their weights of 65536, lanes, last rule and optimizer batch."""

    start: int
    sources: tuple[int, ...]
    weights: tuple[int, ...]
    lanes: int
    last: str
    global_batch: int

    def border(self, position: int) -> int:
        """The first border of an optimizer batch at or after a position."""
        return self.start + max(0, -(-(position - self.start) // self.global_batch)) * self.global_batch


@dataclass(frozen=True)
class Run:
    """`sources` by number: in the order in which they joined."""

    seed: int
    sources: tuple[Joined, ...]
    segments: tuple[Segment, ...]

    def names(self, segment: Segment) -> list[str]:
        return [self.sources[number].name for number in segment.sources]

    def mixed(self) -> list[bool]:
        """Of each segment: several sources, another name than before, or behind a mixed one."""
        found: list[bool] = []
        for i, segment in enumerate(self.segments):
            other = i > 0 and self.names(segment) != self.names(self.segments[i - 1])
            found.append(len(segment.sources) > 1 or other or (i > 0 and found[-1]))
        return found

    def length(self, segment: Segment) -> int:
        """E: samples of an epoch. Raises ATH_ORDER_OPTION if `drop` leaves none."""
        samples = sum(self.sources[number].samples for number in segment.sources)
        return whole_batches(samples, segment)


def whole_batches(samples: int, segment: Segment) -> int:
    if samples < 1:
        raise error("ATH_ORDER_OPTION", "the data set has no samples", remedy="check the path and the columns")
    if segment.last != "drop":
        return samples
    if samples < segment.global_batch:
        raise error(
            "ATH_ORDER_OPTION",
            f'last="drop" leaves nothing of {samples} samples: one optimizer batch is {segment.global_batch}',
            remedy='use last="carry" or a smaller batch',
        )
    return samples // segment.global_batch * segment.global_batch
