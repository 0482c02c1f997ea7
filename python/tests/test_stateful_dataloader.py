"""AthanorDataset under torchdata's StatefulDataLoader, against the fake agent (whose sample n is record n)."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from test_protocol import ids

torch = pytest.importorskip("torch")
stateful = pytest.importorskip("torchdata.stateful_dataloader")

from athanor._state import news  # noqa: E402
from athanor.torch import AthanorDataset, Loader, state_of  # noqa: E402

BATCH = 8


def dataset(**options: Any) -> AthanorDataset:
    return AthanorDataset("/d", batch_size=BATCH, max_length=8, **options)


def over(data: AthanorDataset, workers: int, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        return stateful.StatefulDataLoader(data, batch_size=None, num_workers=workers, **options)


def epochs_of(data: Any, count: int) -> list[list[list[int]]]:
    return [[ids([batch]) for batch in data] for _ in range(count)]


@pytest.fixture
def expected(fake: Path) -> Iterator[list[list[list[int]]]]:
    """Batches of four epochs."""
    with Loader("/d", batch_size=BATCH, max_length=8) as loader:
        yield epochs_of(loader, 4)


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, True), (3, False)])
def test_resume_at_every_kind_of_place(expected: list[list[list[int]]], workers: int, persistent: bool) -> None:
    options = {"persistent_workers": persistent}
    data = over(dataset(), workers, **options)
    states = {(0, 0): copy.deepcopy(data.state_dict())}
    for epoch in range(2):
        for step, batch in enumerate(data, 1):
            assert ids([batch]) == expected[epoch][step - 1]
            states[epoch, step] = copy.deepcopy(data.state_dict())
        assert step == len(expected[epoch])
        states[epoch, -1] = copy.deepcopy(data.state_dict())
    # Before the first batch, in the middle, with some workers at their end, after the last batch, and over (-1).
    ends = [len(steps) for steps in expected]
    places = [(0, 5), (1, ends[1] - 1), (1, ends[1]), (1, -1)]
    for epoch, step in places if workers == 3 else [(0, 0), (0, 1), (0, -1), (1, 2), *places]:
        again = over(dataset(), workers, **options)
        again.load_state_dict(states[epoch, step])
        if step >= 0:
            assert [ids([batch]) for batch in again] == expected[epoch][step:], (epoch, step)
        # The epochs behind it, in workers that have not seen the state.
        assert epochs_of(again, 2) == expected[epoch + 1 : epoch + 3], (epoch, step)


@pytest.mark.parametrize("workers", [0, 2])
def test_resume_twice_and_name_an_epoch(expected: list[list[list[int]]], workers: int) -> None:
    data = over(dataset(), workers)
    seen = []
    for stop in (3, 4, 2):
        iterator = iter(data)
        seen += [ids([next(iterator)]) for _ in range(stop)]
        state = copy.deepcopy(data.state_dict())
        data = over(dataset(), workers)
        data.load_state_dict(state)
    assert seen == expected[0][:9]
    assert [ids([batch]) for batch in data] == expected[0][9:]
    # The state rules over an epoch named before the first batch; the next name counts again.
    source = dataset()
    again = over(source, workers)
    again.load_state_dict(state)
    source.set_epoch(3)
    assert [ids([batch]) for batch in again] == expected[0][9:]
    source.set_epoch(2)
    assert epochs_of(again, 2) == expected[2:4]


@pytest.mark.parametrize(("workers", "every"), [(0, 1), (2, 1), (2, 3), (3, 1)])
@pytest.mark.parametrize("last", ["carry", "pad"])
def test_elastic_state_at_every_step(fake: Path, workers: int, every: int, last: str) -> None:
    """state_of: another number of workers, another world."""
    options: dict[str, Any] = {"max_length": 8, "last": last}
    with Loader("/d", batch_size=BATCH, **options) as loader:
        whole = epochs_of(loader, 2)
    data = over(dataset(last=last), workers, snapshot_every_n_steps=every)
    for step, _ in enumerate(data, 1):
        state = state_of(json.loads(json.dumps(data.state_dict())))
        with Loader("/d", batch_size=BATCH // 2, grad_accum=2, state=state, **options) as single:
            found = ids([next(iter(single))])
        assert found == (whole[0] + whole[1])[step][: BATCH // 2], step
    again = over(dataset(last=last, state=state), 1)
    assert [ids([batch]) for batch in again] == whole[1]


def test_another_number_of_workers_is_refused_with_the_line_to_write(fake: Path) -> None:
    data = over(dataset(), 0)
    next(iter(data))
    again = over(AthanorDataset("/d", batch_size=4, global_batch_size=8, max_length=8), 0)
    again.load_state_dict(data.state_dict())
    with pytest.raises(
        ValueError, match=r"1 and 8, got 1 and 4; write AthanorDataset\(…, state=athanor.torch.state_of"
    ):
        iter(again)


def test_another_order_under_workers_is_refused_with_what_differs(fake: Path) -> None:
    data = over(dataset(global_batch_size=8), 2)
    next(iter(data))
    again = over(dataset(global_batch_size=16), 2)
    again.load_state_dict(data.state_dict())
    with pytest.raises(ValueError, match=r"from sample \d+ global_batch_size 16 \(8 in the state\); write Athanor"):
        next(iter(again))


def test_what_a_state_has_new_is_said_in_words() -> None:
    def state(names: list[str], *segments: dict[str, Any]) -> dict[str, Any]:
        return {"sources": [{"name": name, "view": name} for name in names], "segments": list(segments)}

    def segment(begin: int, *weights: int, size: int = 8) -> dict[str, Any]:
        numbers = list(range(len(weights)))
        return {"from": str(begin), "sources": numbers, "weights": list(weights), "G": size, "last": "carry"}

    first, even = segment(0, 49152, 16384), segment(8, 32768, 32768)
    two = state(["web", "code"], first)
    assert news(two, two) == ""
    changed = "from sample 8 weights code 0.5, web 0.5 (code 0.25, web 0.75 in the state)"
    assert news(two, state(["web", "code"], first, even)) == changed
    third = news(two, state(["web", "code", "math"], first, segment(8, 32768, 16384, 16384, size=16)))
    assert third.startswith("a new source: math; from sample 8 weights code 0.25, math 0.25, web 0.5 (")
    assert third.endswith("global_batch_size 16 (8 in the state)")
    other = state(["web", "code"], first)
    other["sources"][0]["view"] = "other"
    assert news(two, other) == "other data or another reading: web"
