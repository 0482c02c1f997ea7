"""Mixtures, phases, ramps and any batch size at resume, against the real agent. An id says its source and number."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from athanor.numpy import Loader
from conftest import ROOT, agents_in
from tfrecord_writer import write

SIZES = {"web": 230, "code": 110, "math": 60}
SOURCE = 1_000_000  # ids of the sources lie apart by this
Order = dict[int, int]  # position -> id


@pytest.fixture(autouse=True)
def live(run_dir: Path) -> Path:
    return run_dir


def shard(folder: Path, name: str, source: int, first: int, count: int, tokens: int = 1) -> None:
    folder.mkdir(exist_ok=True)
    ids = range(source * SOURCE + first, source * SOURCE + first + count)
    write(folder / name, ({"id": i, "input_ids": [1] * tokens} for i in ids))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("mix")
    for source, (name, size) in enumerate(SIZES.items()):
        half = size // 2
        shard(folder / name, "a.tfrecord", source, 0, half, source + 1)
        shard(folder / name, "b.tfrecord", source, half, size - half, source + 1)
    yield folder


def mix(folder: Path, web: float, code: float, math: float, **more: Any) -> dict[str, Any]:
    weights = {"web": web, "code": code, "math": math}
    return {"sources": {name: {"path": folder / name, "weight": w} for name, w in weights.items()}, **more}


def phase(after: int, web: float, code: float, math: float) -> dict[str, Any]:
    return {"after_samples": after, "weights": {"web": web, "code": code, "math": math}}


class Run:
    """All ranks of a job in this process, step by step."""

    def __init__(self, world: int, batch: int, **options: Any) -> None:
        options = {"columns": ["id"], "identities": True, "max_length": 8, "seed": 5, "timeout": 30, **options}
        self.ranks = [Loader(batch_size=batch, rank=r, world_size=world, **options) for r in range(world)]
        self._steps = [loader.repeat() for loader in self.ranks]

    def step(self) -> list[dict[str, Any]]:
        return [next(steps) for steps in self._steps]

    def take(self, steps: int) -> Order:
        found: Order = {}
        for _ in range(steps):
            for batch in self.step():
                for position, i in zip(batch["_position"].tolist(), batch["id"].tolist()):
                    assert position not in found
                    found[position] = i
        assert sorted(found) == list(range(min(found), min(found) + len(found)))
        return found

    def state(self) -> dict[str, Any]:
        states = [loader.state_dict() for loader in self.ranks]
        assert all(state == states[0] for state in states)
        return json.loads(json.dumps(states[0]))

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        for loader in self.ranks:
            loader.close()


def unbroken(upto: int, world: int, batch: int, **options: Any) -> tuple[Order, dict[int, dict[str, Any]]]:
    """A run in one go, and its state at every step."""
    found: Order = {}
    with Run(world, batch, **options) as run:
        states = {0: run.state()}
        while len(found) < upto:
            found.update(run.take(1))
            states[len(found)] = run.state()
    return found, states


def same(found: Order, expected: Order) -> bool:
    return bool(found) and all(expected[position] == i for position, i in found.items() if position in expected)


def by_pass(found: Order, state: dict[str, Any], number: int) -> list[list[int]]:
    """Ids of each whole pass over a source from position 0 on (docs/reference/order.md, "Mixtures and segments")."""
    lanes, source = state["segments"][0]["L"], state["sources"][number]
    own, samples = source["L"], int(source["samples"])
    rows: dict[int, dict[int, int]] = {m: {} for m in range(own)}
    seen = Counter[int]()
    for position in sorted(found):
        lane = position % lanes
        if found[position] // SOURCE == number:
            rows[lane % own][lane // own + seen[lane] * (lanes // own)] = found[position]
            seen[lane] += 1
    length = [samples // own + (m < samples % own) for m in range(own)]
    served = [next(x for x in range(len(rows[m]) + 1) if x not in rows[m]) for m in range(own)]
    passes = min(served[m] // length[m] for m in range(own))
    return [[rows[m][p * length[m] + x] for m in range(own) for x in range(length[m])] for p in range(passes)]


@pytest.mark.parametrize(
    ("batch", "lanes"), [(4, {}), (8, {"lanes": 64, "window": 8}), (32, {"lanes": 64, "window": 8})]
)
def test_every_rank_has_its_share_in_every_step(data: Path, batch: int, lanes: dict[str, int]) -> None:
    weights = (0.7, 0.2, 0.1)
    found: Order = {}
    with Run(8, batch, mix=mix(data, *weights), **lanes) as run:
        for _ in range(6400 // (8 * batch) // 4):
            for rank in run.step():
                sources = Counter((rank["id"] // SOURCE).tolist())
                assert sources == Counter(rank["_source"].tolist())
                for number, weight in enumerate(weights):
                    assert abs(sources[number] - batch * weight) <= 2
                found.update(zip(rank["_position"].tolist(), rank["id"].tolist()))
        state = run.state()
        counts = Counter[str]()
        for loader in run.ranks:
            counts.update(loader.stats()["sources"])
    if lanes:
        assert state["segments"][0]["L"] == 64
    for number, (name, size) in enumerate(SIZES.items()):
        assert counts[name] == sum(i // SOURCE == number for i in found.values())
        passes = by_pass(found, state, number)
        assert len(passes) >= 1
        for ids in passes:
            assert sorted(ids) == list(range(number * SOURCE, number * SOURCE + size))
        assert len(passes) < 2 or passes[0] != passes[1]


def test_resume_at_every_step_at_any_world(data: Path) -> None:
    job = {"mix": mix(data, 0.7, 0.2, 0.1), "global_batch_size": 840, "lanes": 8, "window": 16}
    whole, states = unbroken(2 * 840 + 240, 1, 120, **job)
    for number, (position, state) in enumerate(states.items()):
        if position + 240 > len(whole):
            break
        worlds = (7,) if position % 840 == 0 and number else ((1, 8), (2, 5), (3, 4), (6, 8))[number % 4]
        for world in worlds:
            batch = 840 // 7 if world == 7 else 120 // world
            with Run(world, batch, state=state, **job) as run:
                assert run.state() == state
                assert run.ranks[0].grad_accum == 840 // (world * batch)
                assert same(run.take(2 if world < 7 else 1), whole)


def test_phases_and_ramp_are_the_same_however_often_a_run_stops(data: Path) -> None:
    content = mix(data, 0.7, 0.3, 0, phases=[phase(300, 0.5, 0.3, 0.2), phase(700, 0, 0, 1)])
    job = {"mix": content, "global_batch_size": [(0, 24), (200, 48), (600, 96)], "shuffle_memory": 1 << 14}
    whole, states = unbroken(1200, 1, 12, **job)
    # The first borders at or after 200, 300, 600 and 700.
    assert [(s["from"], s["G"]) for s in states[0]["segments"]] == [
        ("0", 24), ("216", 48), ("312", 48), ("600", 96), ("792", 96)]  # fmt: skip
    assert {i // SOURCE for p, i in whole.items() if p < 312} == {0, 1}
    assert Counter(i // SOURCE for p, i in whole.items() if 312 <= p < 792) == {0: 240, 1: 144, 2: 96}
    assert {i // SOURCE for p, i in whole.items() if p >= 792} == {2}
    for number, position in enumerate(sorted(states)[1:-4:4]):
        world, batch = ((2, 6), (4, 3), (3, 4), (6, 2))[number % 4]
        with Run(world, batch, state=states[position], **job) as run:
            assert run.state()["position"] == str(position)
            assert same(run.take(3), whole)


def test_weights_and_batches_that_change_at_a_resume(data: Path) -> None:
    before = {"mix": mix(data, 0.6, 0.4, 0), "global_batch_size": 48}
    after = {"mix": mix(data, 0.1, 0.4, 0.5), "global_batch_size": 60}
    first, states = unbroken(480, 2, 6, **before)
    # In the middle of a batch: it ends as it was begun.
    state = states[252]
    with Run(1, 12, state=state, **after) as run:
        assert run.ranks[0].global_batch_size == 48
        rest = run.take(3)
        assert rest == {position: first[position] for position in range(252, 288)}
        assert run.ranks[0].global_batch_size == 60
        changed = run.state()
        assert [(s["from"], s["G"]) for s in changed["segments"]] == [("0", 48), ("288", 60)]
        rest.update(run.take(50))
    shares = Counter(i // SOURCE for p, i in rest.items() if p >= 288)
    assert [round(shares[source] / 600, 2) for source in range(3)] == [0.1, 0.4, 0.5]
    # L is 1 here, so passes follow each other, also over the change.
    order = {**{p: i for p, i in first.items() if p < 288}, **rest}
    for number, size in enumerate(SIZES.values()):
        served = [order[p] for p in sorted(order) if order[p] // SOURCE == number]
        for begin in range(0, len(served) - size + 1, size):
            assert sorted(served[begin : begin + size]) == list(range(number * SOURCE, number * SOURCE + size))
    # And the changed run stops and goes on like any other, also with the batch of before.
    with Run(5, 12, state=changed, **after) as run:
        assert same(run.take(4), rest)
    for position in (264, 276):
        with Run(3, 4, state={**state, "position": str(position)}, **after) as run:
            assert same(run.take(8), rest)


def index(folder: Path) -> None:
    command = ["node", str(ROOT / "dist/src/cli/main.js"), "index", str(folder)]
    subprocess.run(command, check=True, capture_output=True, timeout=100)


@pytest.mark.parametrize("mixed", [False, True])
def test_an_appended_shard_joins_at_the_next_pass(tmp_path: Path, mixed: bool) -> None:
    shard(tmp_path / "web", "a.tfrecord", 0, 0, 40)
    shard(tmp_path / "web", "b.tfrecord", 0, 40, 50)
    shard(tmp_path / "code", "a.tfrecord", 1, 0, 30)
    content = {
        "sources": {"web": {"path": tmp_path / "web", "weight": 3}, "code": {"path": tmp_path / "code", "weight": 1}}
    }
    job: dict[str, Any] = {"mix": content} if mixed else {"source": tmp_path / "web"}
    job["global_batch_size"] = 12
    whole, states = unbroken(120, 1, 12, **job)
    shard(tmp_path / "web", "c.tfrecord", 0, 90, 21)
    index(tmp_path / "web")
    position = 60
    with Run(2, 6, state=states[position], **job) as run:
        found = run.take(30)
        longer = run.state()
    served = [i for i in [*(whole[p] for p in range(position)), *found.values()] if i < SOURCE]
    assert sorted(served[:90]) == list(range(90))
    assert sorted(served[90 : 90 + 111]) == list(range(111))
    assert len(served) > 201
    assert [source["samples"] for source in longer["sources"] if source["name"] != "code"] == ["90", "111"]
    everything = {**{p: whole[p] for p in range(position)}, **found}
    # The state of then, and states of the run over the new set: each goes on in the same sequence.
    for again in range(position, position + 300, 36):
        with Run(3, 4, state={**longer, "position": str(again)}, **job) as run:
            assert same(run.take(3), everything)


def test_a_run_over_one_source_becomes_a_mixture(data: Path) -> None:
    plain, states = unbroken(360, 2, 6, source=data / "web", global_batch_size=12)
    joined = {"sources": {"data": {"path": data / "web", "weight": 1}, "math": {"path": data / "math", "weight": 1}}}
    with Run(1, 12, state=states[96], mix=joined, global_batch_size=12) as run:
        found = run.take(60)
        state = run.state()
    assert [source["name"] for source in state["sources"]] == ["data", "math"]
    web = [*(plain[p] for p in range(96)), *(i for i in found.values() if i < SOURCE)]
    assert sorted(web[:230]) == list(range(230))
    assert abs(sum(i >= SOURCE for i in found.values()) - 360) <= 2
    with Run(4, 3, state={**state, "position": "300"}, mix=joined, global_batch_size=12) as run:
        assert same(run.take(5), found)


def test_weights_by_tokens(data: Path) -> None:
    # A sample of math has three tokens, one of web has one.
    content = mix(data, 1, 0, 1, weights_by="tokens")
    with Run(1, 40, mix=content) as run:
        found = run.take(10)
    assert Counter(i // SOURCE for i in found.values()) == {0: 300, 2: 100}


def test_a_source_that_is_still_due_must_be_named(data: Path) -> None:
    _, states = unbroken(120, 1, 6, mix=mix(data, 1, 1, 0), global_batch_size=60)
    only = {"sources": {"web": {"path": data / "web", "weight": 1}}}
    # In the middle of an optimizer step the sources of before are due to its end.
    with pytest.raises(ValueError) as caught, Run(1, 6, state=states[66], mix=only, global_batch_size=60) as run:
        run.take(1)
    assert caught.value.code == "ATH_STATE_MISMATCH" and "source code" in str(caught.value)  # type: ignore[attr-defined]
    with Run(1, 6, state=states[120], mix=only, global_batch_size=60) as run:
        assert {i // SOURCE for i in run.take(20).values()} == {0}


def test_an_agent_dies_where_a_loader_went_back_to_before_a_change(data: Path, live: Path) -> None:
    """A new agent would put the change at the next optimizer step, wherever it was before."""
    job = {"batch_size": 8, "columns": ["id"], "identities": True, "max_length": 8, "seed": 5, "timeout": 30}
    before, states = unbroken(200, 1, 8, mix=mix(data, 1, 1, 0))
    # More steps than a segment has slots: the death is seen.
    with Loader(mix=mix(data, 0, 1, 1), state=states[200], **job) as loader:
        next(iter(loader))
        loader.set_epoch(0)
        found: Order = {}
        for step, batch in enumerate(loader):
            found.update(zip(batch["_position"].tolist(), batch["id"].tolist()))
            if step == 2:
                for pid in agents_in(live):
                    os.kill(pid, signal.SIGKILL)
            if len(found) == 200:
                break
        assert loader.stats()["agent_deaths"] == 1
    assert sorted(found) == list(range(200))
    assert same(found, before)
