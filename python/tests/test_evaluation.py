"""`loader.eval(...)` against the real agent: beside training, on any world, in little memory that is always there."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import athanor
from athanor.errors import AthanorError
from athanor.numpy import Loader
from conftest import agents_in
from tfrecord_writer import write

MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def live(run_dir: Path) -> Path:
    return run_dir


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sets")
    for name, count in (("train", 400), ("seven", 7), ("books", 50)):
        (folder / name).mkdir()
        for shard in range(2):
            rows = range(shard * count // 2, (shard + 1) * count // 2)
            write(folder / name / f"{shard}.tfrecord", ({"id": i, "input_ids": [i, i + 1]} for i in rows))
    return folder


def trainers(data: Path, world: int, **options: Any) -> list[Loader]:
    """The ranks of one node."""
    return [
        Loader(data / "train", batch_size=2, max_length=4, seed=5, rank=r, world_size=world, **options)
        for r in range(world)
    ]


def evaluate(loaders: list[Loader]) -> tuple[list[int], int]:
    """Ids of the valid rows, step after step over all ranks, and the number of steps."""
    assert len({len(loader) for loader in loaders}) == 1
    iterators = [iter(loader) for loader in loaders]
    found = []
    for _ in range(len(loaders[0])):
        for iterator in iterators:
            batch = next(iterator)
            assert batch["id"].shape == batch["valid"].shape
            found += batch["id"][batch["valid"]].tolist()
    assert all(next(iterator, None) is None for iterator in iterators)
    return found, len(loaders[0])


@pytest.mark.parametrize("agent", ["auto", "none"])
@pytest.mark.parametrize("world", [1, 3, 8])
def test_several_sets_beside_training(data: Path, world: int, agent: str) -> None:
    loaders = trainers(data, world, agent=agent)
    training = [loader.repeat() for loader in loaders]
    seven = [loader.eval(data / "seven", batch_size=1) for loader in loaders]
    books = [loader.eval(data / "books") for loader in loaders]
    seen: list[int] = []
    for _ in range(3):
        for _ in range(5):
            for iterator in training:
                seen += next(iterator)["id"].tolist()
        # In file order, as one list of predictions is wanted.
        assert evaluate(seven) == (list(range(7)), -(-7 // world))
        assert evaluate(books) == (list(range(50)), -(-50 // (2 * world)))
    with Loader(data / "train", batch_size=2 * world, max_length=4, seed=5, agent="none") as alone:
        iterator = alone.repeat()
        expected = [sorted(next(iterator)["id"].tolist()) for _ in range(15)]
    steps = [sorted(seen[i : i + 2 * world]) for i in range(0, len(seen), 2 * world)]
    assert steps == expected, "training goes on as if nobody had evaluated"
    for loader in [*loaders, *seven, *books]:
        loader.close()


def test_nothing_is_held_between_evaluations(data: Path) -> None:
    (loader,) = trainers(data, 1)
    next(iter(loader))

    def agent() -> tuple[int, int]:
        for _ in range(100):  # the agent hears of the end a moment later
            stats = loader.stats()["agent"]
            if stats["sessions"] == 1:
                break
            time.sleep(0.02)
        return stats["sessions"], stats["reserved"]

    alone = agent()
    books = loader.eval(data / "books")
    assert agent() == alone
    batches = iter(books)
    next(batches)
    during = loader.stats()["agent"]
    assert during["sessions"] == 2 and 0 < during["reserved"] - alone[1] < 40 * MIB
    assert len(list(batches)) == 24
    assert agent() == alone
    assert len(list(books)) == 25 and agent() == alone
    loader.close()
    books.close()


def test_training_that_took_all_memory_leaves_room_for_evaluation(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATHANOR_AGENT_MEMORY", "400MiB")
    full: list[Loader] = []
    with pytest.raises(athanor.AthanorError, match="besides 50MiB for evaluation") as caught:
        for seed in range(100):
            full.append(Loader(data / "train", batch_size=2, max_length=4, seed=seed))
            next(iter(full[-1]))
    assert caught.value.code == "ATH_MEMORY_BUDGET" and len(full) > 5
    # As the ranks of one node come: each opens its own session of one group.
    seven = [full[0].eval(data / "seven", batch_size=1, rank=rank, world_size=8) for rank in range(8)]
    for _ in range(2):
        assert [row for loader in seven for batch in loader for row in batch["id"][batch["valid"]]] == list(range(7))
    for loader in [*full, *seven]:
        loader.close()


def test_what_cannot_be_is_an_error_where_the_loader_is_made(data: Path, run_dir: Path) -> None:
    (loader,) = trainers(data, 1)
    with pytest.raises(athanor.AthanorError) as caught:
        loader.eval(data / "nowhere")
    assert caught.value.code == "ATH_NOT_FOUND"
    with pytest.raises(ValueError, match="batch_size must be given alone"):
        loader.eval(data / "books", grad_accum=2)
    with pytest.raises(TypeError, match="colums"):
        loader.eval(data / "books", colums=["id"])
    assert agents_in(run_dir)
    loader.close()


def test_it_takes_the_options_of_the_loader_that_are_not_given(data: Path) -> None:
    loader = Loader(
        data / "train", batch_size=3, max_length=5, columns=["input_ids"], pad_id=9, rank=1, world_size=2,
        transform=lambda batch: {**batch, "labels": batch["input_ids"]},
    )  # fmt: skip
    same = loader.eval(data / "seven")
    (batch, *_) = list(same)
    assert batch["labels"].shape == (3, 5) and batch["labels"][0].tolist() == [3, 4, 9, 9, 9]
    assert (same.rank, same.world_size, len(same)) == (1, 2, 2)
    other = loader.eval(
        data / "seven", batch_size=2, columns=["id"], rank=0, world_size=1, transform=None, shuffle="window"
    )
    batches = list(other)
    assert [set(batch) for batch in batches] == [{"id", "valid"}] * 4
    assert sorted(i for batch in batches for i in batch["id"][batch["valid"]].tolist()) == list(range(7))
    for one in (loader, same, other):
        one.close()


def test_an_evaluation_over_the_training_data(data: Path) -> None:
    """Other ranks may open it before their training loader: it disagrees with nobody."""
    first, second = trainers(data, 2)
    next(iter(first))
    evaluation = second.eval(data / "train", batch_size=50)
    assert sum(int(batch["valid"].sum()) for batch in evaluation) == 200
    for loader in (first, second, evaluation):
        loader.close()


@pytest.mark.parametrize("agent", ["auto", "none"])
def test_a_field_valid_gives_way_to_that_of_the_loader(tmp_path: Path, agent: str) -> None:
    write(tmp_path / "a.tfrecord", ({"id": i, "valid": 7} for i in range(3)))
    options = {"batch_size": 2, "max_length": 4, "shuffle": "none", "agent": agent}
    with Loader(tmp_path, last="pad", **options) as loader:
        assert [batch["valid"].tolist() for batch in loader] == [[True, True], [True, False]]
    with Loader(tmp_path, **options) as loader:
        assert next(iter(loader))["valid"].tolist() == [7, 7]
    with pytest.raises(ValueError, match="which the loader adds itself"):
        next(iter(Loader(tmp_path, last="pad", columns=["id", "valid"], **options)))


@pytest.mark.parametrize("agent", ["auto", "none"])
def test_fields_of_the_names_of_identities_are_refused_by_code(tmp_path: Path, agent: str) -> None:
    write(tmp_path / "a.tfrecord", ({"id": i, "_position": 7, "_record": 7} for i in range(3)))
    options = {"batch_size": 2, "max_length": 4, "shuffle": "none", "agent": agent}
    with pytest.raises(AthanorError, match="must not hold _position, _record, which the loader adds") as raised:
        next(iter(Loader(tmp_path, identities=True, **options)))
    assert raised.value.code == "ATH_COLUMN_UNKNOWN"
    with Loader(tmp_path, identities=True, columns=["id"], **options) as loader:
        assert next(iter(loader))["_position"].tolist() == [0, 1]
    with Loader(tmp_path, **options) as loader:
        assert next(iter(loader))["_position"].tolist() == [7, 7]
