"""Mixtures and segments of the reference keep the promises of docs/reference/order.md: random runs, no files."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from athanor.errors import AthanorError
from athanor.reference import Job, Options, Order, Run, Totals, go_on, plan, state_of
from athanor.reference.mixture import PERIOD, Turns, _Period, whole_weights
from athanor.reference.passes import lane_samples

View = tuple[str, Totals]


def view_of(name: str, version: int, samples: int) -> View:
    blocks = max(1, samples // 5)
    fingerprint = f"{sum(name.encode()):016x}{version:016x}"
    return fingerprint, Totals(samples, samples * 100, blocks, min(samples, 5), 64, tokens=samples * 3, records=samples)


def extents_of(samples: int) -> list[int]:
    return [5] * (samples // 5) + ([samples % 5] if samples % 5 else [])


def order_of(run: Run) -> Order:
    return Order(run, lambda number: extents_of(run.sources[number].samples))


def random_job(rng: random.Random, last: str = "carry", sources: int | None = None) -> Job:
    count = sources or rng.randint(1, 4)
    views = {name: view_of(name, 1, rng.choice([1, 3, 17, 60, 150])) for name in ("web", "code", "math", "ü")[:count]}
    weights = lambda: [rng.choice([0, 1, 2, 0.5, 0.1]) for _ in range(count - 1)] + [rng.choice([1, 0.3])]  # noqa: E731
    phases = [(0, weights())] + [(rng.randint(1, 300), weights()) for _ in range(rng.choice([0, 0, 1, 2]))]
    ramp = [(0, rng.choice([8, 24]))] + [
        (rng.randint(1, 300), rng.choice([4, 16, 40])) for _ in range(rng.choice([0, 1, 2]))
    ]
    options = rng.choice(
        [
            {"shuffle_memory": 1 << 12},
            {"lanes": rng.choice([1, 4, 6]), "shuffle_memory": 1 << 10},
            {"window": 7},
            {"shuffle": "none"},
            {},
        ]
    )
    return Job(
        seed=rng.getrandbits(64),
        views=views,
        phases=sorted(dict(phases).items()),
        ramp=sorted(dict(ramp).items()),
        last=last,
        by=rng.choice(["samples", "samples", "tokens"]),
        options=Options(**options),
        max_length=rng.choice([1, 512]),
    )


def appended_job(rng: random.Random, job: Job) -> Job:
    """The same job later: shards appended to some sources, other weights, another G, another source."""
    views, past = dict(job.views), dict(job.past)
    for name, (view, totals) in job.views.items():
        if rng.random() < 0.5:
            views[name] = view_of(name, int(view[16:], 16) + 1, totals.samples + rng.randint(1, 30))
            past[name] = [view, *past.get(name, ())]
    phases = [(0, [rng.choice([1, 2, 0.2]) for _ in views])] if rng.random() < 0.5 else job.phases
    return replace(job, views=views, past=past, phases=phases, ramp=[(0, rng.choice([8, 12, 16]))])


def rows(order: Order, start: int, stop: int) -> list[Any]:
    return [order.locate(position) for position in range(start, stop)]


# -- weights and turns


def test_weights_add_up_and_stay_within_one_of_their_share() -> None:
    rng = random.Random(1)
    for _ in range(200):
        weights = [rng.choice([0, rng.random(), rng.randint(1, 9)]) for _ in range(rng.randint(1, 8))] + [1]
        whole = whole_weights(weights)
        assert sum(whole) == PERIOD
        for weight, given in zip(weights, whole):
            assert abs(given - weight * PERIOD / sum(weights)) < 1
            assert (given == 0) == (weight == 0)
    with pytest.raises(AthanorError, match="ATH_ORDER_OPTION"):
        whole_weights([1, 1e-9])
    with pytest.raises(AthanorError, match="ATH_ORDER_OPTION"):
        whole_weights([0, 0])


def test_a_source_is_within_one_of_its_share_in_every_prefix_and_within_two_in_every_batch() -> None:
    for weights in ([0.7, 0.2, 0.1], [1, 1], [5, 1, 1, 1, 1], [0.001, 0.999]):
        whole = tuple(whole_weights(weights))
        turns = Turns(whole)
        k = np.arange(3 * PERIOD)
        for i, weight in enumerate(whole):
            counts = turns.count(i, k)
            share = k * weight / PERIOD
            assert np.abs(counts - share).max() < 1
            assert counts[PERIOD] == weight
            assert [turns.source(n) for n in (0, PERIOD - 1)] == [turns.source(n) for n in (PERIOD, 2 * PERIOD - 1)]


@pytest.mark.parametrize("batch", [4, 8, 32])
def test_every_rank_sees_every_source_in_proportion_in_every_step(batch: int) -> None:
    weights = [0.7, 0.2, 0.1]
    views = {name: view_of(name, 1, 4000) for name in ("a", "b", "c")}
    job = Job(3, views, [(0, weights)], [(0, 8 * batch)], options=Options(lanes=64, shuffle_memory=1 << 12))
    order = order_of(plan(job))
    assert order.run.segments[0].lanes == 64
    for step in range(0, 100 * 8 * batch, 8 * batch):
        for rank in range(8):
            dealt = order.deal(step, 8 * batch, 8, rank).positions
            sources = [order.place(position)[0] for position in dealt.tolist()]
            for number, weight in enumerate(weights):
                assert abs(sources.count(number) - batch * weight) <= 2


# -- sequences


@pytest.mark.parametrize("seed", range(24))
def test_every_sample_once_a_pass_through_phases_appended_shards_and_new_sources(seed: int) -> None:
    rng = random.Random(seed)
    job = random_job(rng)
    run = plan(job)
    at = rng.randint(1, 400)
    for _ in range(rng.choice([0, 1, 2, 3])):  # loads of later jobs
        job = appended_job(rng, job)
        run = plan(job, run, at)
        at += rng.randint(1, 200)
    order = order_of(run)
    places: dict[tuple[int, int], list[int]] = defaultdict(list)
    samples: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row in rows(order, 0, at + 1000):
        each = lane_samples(run.sources[row.source].samples, run.sources[row.source].how.lanes, row.lane)
        assert 0 <= row.row < each
        places[row.source, row.lane].append(row.epoch * each + row.row)
        samples[row.source, row.epoch].append(row.sample)
    for found in samples.values():
        assert len(set(found)) == len(found)
    for (number, lane), found in places.items():
        joined = run.sources[number]
        each = lane_samples(joined.samples, joined.how.lanes, lane)
        assert len(set(found)) == len(found)
        # From the beginning of a pass on without a hole, but for what lanes of the mixture have not come to yet.
        apart = (2 * len(run.segments) + 1) * max(segment.lanes for segment in run.segments) // joined.how.lanes
        assert min(found) // each * each >= min(found) - apart
        missing = set(range(min(found) // each * each, max(found))) - set(found)
        assert all(place >= max(found) - apart for place in missing), (number, lane, sorted(missing), max(found))


@pytest.mark.parametrize("seed", range(24))
def test_a_run_that_is_loaded_at_any_position_goes_on_with_the_same_rows(seed: int) -> None:
    rng = random.Random(1000 + seed)
    job = random_job(rng, rng.choice(["carry", "carry", "drop"]))
    try:
        run = plan(job)
        at = rng.randint(1, 300)
        for _ in range(rng.choice([0, 1, 2])):
            job = appended_job(rng, job)
            run = plan(job, run, at)
            at += rng.randint(50, 200)
        whole = order_of(run)
    except AthanorError as error:
        assert error.code == "ATH_ORDER_OPTION"
        assert job.last == "drop"
        return
    expected = rows(whole, 0, at + 420)
    # From where the last job is in force: the same job again changes nothing, at any position.
    for position in {at, at + 300, *(rng.randint(at, at + 300) for _ in range(5))}:
        state = json.loads(json.dumps(state_of(run, position)))
        again, found = go_on(job, state)
        assert found == position
        assert rows(order_of(again), position, position + 120) == expected[position : position + 120]


@pytest.mark.parametrize("seed", range(16))
def test_world_size_and_batch_size_share_optimizer_batches_only(seed: int) -> None:
    rng = random.Random(2000 + seed)
    order = order_of(plan(random_job(rng)))
    for start in range(0, 400, 8):
        segment = [segment for segment in order.run.segments if segment.start <= start][-1]
        size = segment.global_batch
        batch = start - (start - segment.start) % size
        for world in (1, 2, 4):
            for step in (size, size // 4 * 4 and size // (size // 4)):
                if size % step or step % world:
                    continue
                positions: list[int] = []
                for at in range(batch, batch + size, step):
                    for rank in range(world):
                        dealt, valid = order.deal(at, step, world, rank)
                        assert valid == step // world
                        positions += dealt.tolist()
                assert sorted(positions) == list(range(batch, batch + size))


# -- epochs


@pytest.mark.parametrize("seed", range(24))
def test_epochs_follow_each_other_and_begin_at_borders(seed: int) -> None:
    rng = random.Random(3000 + seed)
    job = random_job(rng, "carry")
    run = plan(job)
    run = plan(appended_job(rng, job), run, rng.randint(1, 300))
    epochs = order_of(run).epochs
    begins = [epochs.begin(epoch) for epoch in range(12)]
    assert begins[0] == 0
    assert begins == sorted(begins)
    for begin in begins:
        segment = [segment for segment in run.segments if segment.start <= begin][-1]
        assert (begin - segment.start) % segment.global_batch == 0
    for position in range(0, begins[-1], 7):
        epoch = epochs.epoch_of(position)
        assert epochs.begin(epoch) <= position < epochs.begin(epoch + 1)


def test_threads_that_ask_for_turns_at_once_get_those_of_one_alone() -> None:
    weights = [tuple(whole_weights([0.61 + i / 1e4, 0.4, 0.1])) for i in range(12)]
    places = [0, 516, 1024, 3000]

    def walk(of: tuple[int, ...]) -> list[list[int]]:
        turns = Turns(of)
        return [[turns.source(k), *(int(turns.count(i, k)) for i in range(3))] for k in places]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(walk, [of for of in weights for _ in range(8)]))
    for i, of in enumerate(weights):
        _Period.of.cache_clear()
        assert found[8 * i : 8 * i + 8] == [walk(of)] * 8


@pytest.mark.parametrize("seed", range(16))
def test_a_source_is_said_to_be_over_where_no_row_of_it_comes_any_more(seed: int) -> None:
    rng = random.Random(4000 + seed)
    views = {
        name: view_of(name, 1, rng.choice([1, 3, 17, 40])) for name in ("web", "code", "math")[: rng.randint(1, 3)]
    }
    options = Options(**rng.choice([{"lanes": 6, "shuffle_memory": 1 << 10}, {"window": 7}, {"shuffle": "none"}, {}]))
    job = Job(seed, views, [(0, [1] * len(views))], [(0, rng.choice([8, 24]))], options=options)
    run = plan(job)
    at = rng.randint(1, 150)
    for _ in range(rng.choice([1, 2])):
        kept = rng.sample(list(job.views), rng.randint(1, len(job.views)))
        job = appended_job(rng, replace(job, views={name: job.views[name] for name in job.views if name in kept}))
        job = replace(job, phases=[(0, [1] * len(job.views))])
        run = plan(job, run, at)
        at += rng.randint(1, 150)
    order = order_of(run)
    soon = at + 24
    sources = [row.source for row in rows(order, 0, soon + 4 * 100)]  # what comes at all comes within a pass
    for number in range(len(run.sources)):
        last = max((position for position, source in enumerate(sources) if source == number), default=0)
        for position in {at, last, last + 1, *(rng.randrange(at) for _ in range(8))}:
            if position < soon:
                assert order.serves(number, position) == (number in sources[position:]), (number, position, last)
