"""From what a job wants, and a state, to the segments of a run (docs/reference/order.md, "Mixtures and segments").

>>> job = Job(seed=7, views={"web": (fingerprint, totals)}, phases=[(0, [1.0])], ramp=[(0, 256)])
>>> plan(job).segments
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import lcm

from ..errors import error
from .mixture import whole_weights
from .resolve import Options, Totals, resolve, share
from .segments import Joined, Run, Segment
from .sequence import Plain
from .sequence import Sequence as Rows


@dataclass(frozen=True)
class Job:
    """`views`: fingerprint and totals of each source name. `phases`: (from, weights in the order of `views`), `ramp`:
    (from, G), both ascending from 0 on. `by`: "samples" or "tokens". `appended(name, old)`: whether the view is the old
    one (by fingerprint) with shards appended."""

    seed: int
    views: dict[str, tuple[str, Totals]]
    phases: Sequence[tuple[int, Sequence[float]]]
    ramp: Sequence[tuple[int, int]]
    by: str = "samples"
    last: str = "carry"
    options: Options = field(default_factory=Options)
    max_length: int = 1
    appended: Callable[[str, str], bool] = lambda name, old: False

    def mix(self, position: int) -> list[tuple[str, int]]:
        """(name, weight of 65536) of the sources in force."""
        weights = list([weights for start, weights in self.phases if start <= position][-1])
        if self.by == "tokens":
            for i, (_, totals) in enumerate(self.views.values()):
                if weights[i] > 0:
                    weights[i] /= min(totals.tokens / totals.samples, self.max_length)
        whole = whole_weights(weights)
        return [(name, weight) for name, weight in zip(self.views, whole) if weight > 0]

    def global_batch(self, position: int) -> int:
        return [size for start, size in self.ramp if start <= position][-1]

    def changes(self, position: int) -> list[int]:
        """Later positions at which something else is wanted."""
        return sorted({start for start, _ in (*self.phases, *self.ramp) if start > position})


def plan(job: Job, old: Run | None = None, position: int = 0, start: int = 0) -> Run:
    """The run that goes on from `old` at `position`, or a new one from `start` on. Raises ATH_STATE_MISMATCH for a view
    that is not the old one with shards appended, and ATH_ORDER_OPTION."""
    if old is None:
        run = _begin(job, Run(job.seed, (), ()), start)
        position = start
    else:
        segments = [segment for i, segment in enumerate(old.segments) if i == 0 or segment.start < position]
        run = _forget(replace(old, segments=tuple(segments)))
        run = _begin(job, run, run.segments[-1].border(position))
    for change in job.changes(position):
        run = _begin(job, run, run.segments[-1].border(change))
    return run


def _begin(job: Job, run: Run, at: int) -> Run:
    """A segment at `at`, if what the job wants there differs from the last segment."""
    mix, size = job.mix(at), job.global_batch(at)
    if run.segments:
        last = run.segments[-1]
        have = [(run.sources[number], weight) for number, weight in zip(last.sources, last.weights)]
        wanted = [(name, job.views[name][0], weight) for name, weight in mix]
        if [(joined.name, joined.view, weight) for joined, weight in have] == wanted and last.global_batch == size:
            return run
    for joined in _newest(run).values():
        view = job.views[joined.name][0] if joined.name in dict(mix) else joined.view
        if view != joined.view and not job.appended(joined.name, joined.view):
            raise error(
                "ATH_STATE_MISMATCH",
                f"the state belongs to another order (view fingerprint of {joined.name}: state has {joined.view}, this "
                f"job has {view}, which is not the old one with shards appended)",
                remedy="use the data of the run that wrote it, or override=True to begin a new order here",
            )
    if run.segments and run.segments[-1].start == at:
        run = _forget(replace(run, segments=run.segments[:-1]))
    return _join(job, run, mix, size, at)


def _join(job: Job, run: Run, mix: list[tuple[str, int]], size: int, at: int) -> Run:
    sources = list(run.sources)
    known = {(joined.name, joined.view): number for number, joined in enumerate(sources)}
    names = [name for name, _ in mix]
    mixed = len(mix) > 1 or (bool(run.segments) and (run.mixed()[-1] or names != run.names(run.segments[-1])))
    if mixed and job.last == "pad":
        raise error("ATH_ORDER_OPTION", 'a mixture cannot have last="pad"', remedy='use last="carry"')
    new = [name for name in names if (name, job.views[name][0]) not in known]
    weights = dict(mix)
    options = {name: share(job.options, weights[name]) if mixed else job.options for name in new}
    lanes: int | None = None
    if mixed and run.segments and run.mixed()[-1]:
        lanes = run.segments[-1].lanes
    elif mixed:
        lanes = _first_lanes(job, run, at, [resolve(job.views[name][1], options[name]).lanes for name in new])
    for name in new:
        view, totals = job.views[name]
        known[name, view] = len(sources)
        sources.append(Joined(name, view, totals.samples, resolve(totals, options[name], lanes)))
    numbers = tuple(known[name, job.views[name][0]] for name in names)
    last = run.segments[-1].last if run.segments else job.last
    segment = Segment(
        at, numbers, tuple(weight for _, weight in mix), lanes or sources[numbers[0]].how.lanes, last, size
    )
    return replace(run, sources=tuple(sources), segments=(*run.segments, segment))


def _first_lanes(job: Job, run: Run, at: int, wanted: list[int]) -> int:
    """L of the first mixed segment; `wanted`: what new sources would have by themselves."""
    before = 1
    if run.segments:
        part = Rows(run).part(at)
        if isinstance(part, Plain):
            (links,) = part.chain(at).values()
            before = lcm(*(run.sources[link.number].how.lanes for link in links))
    if job.options.lanes is not None:
        if job.options.lanes % before != 0:
            raise error(
                "ATH_ORDER_OPTION",
                f"lanes must be a multiple of {before}, the lanes of the source that the mixture goes on with, got "
                f"{job.options.lanes}",
            )
        return job.options.lanes
    lanes = before
    while lanes < max(wanted, default=1):
        lanes *= 2
    return lanes


def _newest(run: Run) -> dict[str, Joined]:
    """The last view of each name."""
    return {run.sources[number].name: run.sources[number] for segment in run.segments for number in segment.sources}


def _forget(run: Run) -> Run:
    """Without the sources that no segment names."""
    named = {number for segment in run.segments for number in segment.sources}
    place = {number: i for i, number in enumerate(sorted(named))}
    segments = tuple(
        replace(segment, sources=tuple(place[number] for number in segment.sources)) for segment in run.segments
    )
    return replace(run, sources=tuple(run.sources[number] for number in place), segments=segments)


def compact(run: Run, position: int) -> Run:
    """Without the segments that no formula needs: of plain ones in a row that differ in G only, the first and the last
    that has begun stay. Only for `carry`, where G is no part of the sequence."""
    kept: list[Segment] = []
    mixed = run.mixed()
    for i, segment in enumerate(run.segments):
        drop = (
            0 < i < len(run.segments) - 1
            and segment.last == "carry"
            and run.segments[i + 1].start <= position
            and all(
                replace(other, start=0, global_batch=1) == replace(segment, start=0, global_batch=1)
                for other in (run.segments[i - 1], run.segments[i + 1])
            )
            and not mixed[i]
        )
        if not drop:
            kept.append(segment)
    return replace(run, segments=tuple(kept))
