"""From what a job wants, and a state, to the segments of a run (docs/reference/order.md, "Mixtures and segments").

>>> job = Job(seed=7, views={"web": (fingerprint, totals)}, phases=[(0, [1.0])], ramp=[(0, 256)])
>>> plan(job).segments
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import lcm

from ..errors import error
from .mixture import whole_weights
from .resolve import Options, Totals, default_lanes, resolve, resolve_share
from .segments import Joined, Run, Segment
from .sequence import Rows


@dataclass(frozen=True)
class Job:
    """`views`: fingerprint and totals of each source name. `phases`: (from, weights in the order of `views`), `ramp`:
    (from, G), both ascending from 0 on. `by`: "samples" or "tokens". `past`: fingerprints of the views that a source
    was before shards were appended."""

    seed: int
    views: dict[str, tuple[str, Totals]]
    phases: Sequence[tuple[int, Sequence[float]]]
    ramp: Sequence[tuple[int, int]]
    by: str = "samples"
    last: str = "carry"
    options: Options = field(default_factory=Options)
    max_length: int = 1
    past: dict[str, Sequence[str]] = field(default_factory=dict)

    def mix(self, position: int) -> list[tuple[str, int]]:
        """(name, weight of 65536) of the sources in force."""
        weights = list([weights for start, weights in self.phases if start <= position][-1])
        if self.by == "tokens":
            for i, (_, totals) in enumerate(self.views.values()):
                weights[i] /= max(min(totals.tokens / totals.records, self.max_length), 1)
        whole = whole_weights(weights)
        return [(name, weight) for name, weight in zip(self.views, whole) if weight > 0]

    def global_batch(self, position: int) -> int:
        return [size for start, size in self.ramp if start <= position][-1]

    def changes(self, position: int) -> list[int]:
        """Later positions at which something else is wanted."""
        return sorted({start for start, _ in (*self.phases, *self.ramp) if start > position})

    def check(self) -> None:
        """Refuses what cannot be combined: ATH_ORDER_OPTION."""
        for what, starts in (("phases", [at for at, _ in self.phases]), ("ramp", [at for at, _ in self.ramp])):
            if not starts or starts[0] != 0 or starts != sorted(set(starts)):
                raise error("ATH_ORDER_OPTION", f"{what} must begin at 0 and ascend, found {starts}")
        if self.last != "carry" and len(self.ramp) > 1:
            raise error("ATH_ORDER_OPTION", f'a batch ramp needs last="carry", found last="{self.last}"')
        if self.last == "pad" and (len(self.views) > 1 or len(self.phases) > 1):
            what = 'last="pad" needs one source: a mixture has no end'
            raise error("ATH_ORDER_OPTION", what, remedy="evaluate each source by itself")


def plan(job: Job, old: Run | None = None, position: int = 0, start: int = 0) -> Run:
    """The run that goes on from `old` at `position`, or a new one from `start` on. Raises ATH_ORDER_OPTION."""
    job.check()
    if old is None:
        at = position = start
        run = Run(job.seed, (), ())
    else:
        run = begun(old, position)
        at = border(run, position)
    run = _begin(job, run, at)
    for change in job.changes(at):
        run = _begin(job, run, border(run, change))
    return _compact(run, position)


def begun(run: Run, position: int) -> Run:
    """What stays of a run at a position: its past."""
    segments = tuple(segment for i, segment in enumerate(run.segments) if i == 0 or segment.start < position)
    known = max(number for segment in segments for number in segment.sources) + 1
    return replace(run, sources=run.sources[:known], segments=segments)


def border(run: Run, position: int) -> int:
    """The first border of the last segment at or after a position; with `pad` an epoch ends its last batch."""
    last = run.segments[-1]
    if position <= last.start or last.last != "pad":
        return last.border(position)
    samples = max(run.sources[last.sources[0]].samples, 1)
    begin = last.start + (position - last.start) // samples * samples
    return min(begin + -(-(position - begin) // last.global_batch) * last.global_batch, begin + samples)


def differences(job: Job, run: Run) -> list[str]:
    """What of `run`, the past of a state, is not of this job: another seed, or other data under the same name."""
    found = [f"seed: state has {run.seed}, this job has {job.seed}"] if run.seed != job.seed else []
    newest = {joined.name: joined for joined in run.sources}
    # `pad` has one segment: it goes through one set, as it is.
    padded = run.segments[0].last == "pad"
    for name, (view, totals) in job.views.items():
        joined = newest.get(name)
        if joined is None or (not padded and joined.view in job.past.get(name, ())):
            continue
        if joined.view != view:
            what = f"view fingerprint of {name} (data, columns, max_length or tokenizer)"
            found.append(f"{what}: state has {joined.view}, this job has {view}")
        elif joined.samples != totals.samples:
            found.append(f"samples of {name}: state has {joined.samples}, this job has {totals.samples}")
    if (padded and len(job.views) > 1) or not set(newest) & set(job.views):
        found.append(f"sources: state has {', '.join(newest)}, this job has {', '.join(job.views)}")
    return found


def _begin(job: Job, run: Run, at: int) -> Run:
    """A segment at `at`, if what the job wants there differs from the last segment."""
    mix, size = job.mix(at), job.global_batch(at)
    last = run.segments[-1] if run.segments else None
    if last is not None:
        have = [(run.sources[number], weight) for number, weight in zip(last.sources, last.weights)]
        if [(joined.name, joined.view, weight) for joined, weight in have] == [
            (name, job.views[name][0], weight) for name, weight in mix
        ]:
            if last.global_batch == size:
                return run
            again = replace(last, global_batch=size)
            if last.start == at or last.last == "pad":  # with `pad` G is no part of the order
                return replace(run, segments=(*run.segments[:-1], again))
            return replace(run, segments=(*run.segments, replace(again, start=at)))
        if last.start == at:
            sources = run.sources if len(run.segments) > 1 else ()
            run = replace(run, sources=sources, segments=run.segments[:-1])
    return _join(job, run, mix, size, at)


def _join(job: Job, run: Run, mix: list[tuple[str, int]], size: int, at: int) -> Run:
    sources = list(run.sources)
    known = {(joined.name, joined.view): number for number, joined in enumerate(sources)}
    names = [name for name, _ in mix]
    behind = bool(run.segments) and (run.mixed()[-1] or names[0] != run.names(run.segments[-1])[0])
    lanes = _lanes(job, run, at) if len(mix) > 1 or behind else None
    numbers = []
    for name, weight in mix:
        view, totals = job.views[name]
        if (name, view) not in known:
            known[name, view] = len(sources)
            how = resolve(totals, job.options) if lanes is None else resolve_share(totals, job.options, weight, lanes)
            sources.append(Joined(name, view, totals.samples, how))
        numbers.append(known[name, view])
    last = run.segments[0].last if run.segments else job.last
    weights = tuple(weight for _, weight in mix)
    segment = Segment(at, tuple(numbers), weights, lanes or sources[numbers[0]].how.lanes, last, size)
    return replace(run, sources=tuple(sources), segments=(*run.segments, segment))


def _lanes(job: Job, run: Run, at: int) -> int:
    """L of a mixed segment: that of the mixed ones before, or enough for every source of the job."""
    if run.segments and run.mixed()[-1]:
        return run.segments[-1].lanes
    lanes = 1
    if run.segments:
        (links,) = Rows(run).plain(at).chain(at).values()
        lanes = lcm(*(run.sources[link.number].how.lanes for link in links))
    elif job.options.lanes is not None:
        return job.options.lanes
    if job.options.shuffle == "window":
        used = [totals for i, (_, totals) in enumerate(job.views.values()) if any(w[i] > 0 for _, w in job.phases)]
        while lanes < max(min(default_lanes(totals), totals.samples) for totals in used):
            lanes *= 2
    return lanes


def _compact(run: Run, position: int) -> Run:
    """Without the segments that no formula needs: those between others that differ from them in G only, and end before
    the epoch of the position begins."""
    if len(run.segments) < 3:
        return run
    epochs = Rows(run).epochs
    begin = epochs.begin(epochs.epoch_of(position))

    def alike(a: Segment, b: Segment) -> bool:
        return a.last == "carry" and (a.sources, a.weights) == (b.sources, b.weights)

    kept = [
        segment
        for i, segment in enumerate(run.segments)
        if not (
            0 < i < len(run.segments) - 1
            and run.segments[i + 1].start < begin
            and alike(run.segments[i - 1], segment)
            and alike(segment, run.segments[i + 1])
        )
    ]
    return replace(run, segments=tuple(kept))
