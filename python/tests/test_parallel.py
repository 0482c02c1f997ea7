"""Tensor, context and pipeline parallelism against the real agent: the order does not change when the mesh does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from athanor.errors import AthanorError
from athanor.numpy import Loader, proof_total
from conftest import ROOT, end_agents
from tfrecord_writer import write
from torch_mesh import PROGRAM

SAMPLES, GLOBAL, WIDTH = 202, 16, 16
WINDOWS = {"shuffle": "window", "lanes": 2, "window": 20}
MESHES = [
    {"dp": 4},
    {"dp": 2, "tp": 2},
    {"dp": 2, "cp": 2},
    {"dp": 1, "tp": 2, "pp": 2},
    {"dp": 1, "cp": 4},
]
Batches = list[list[dict[str, Any]]]


@pytest.fixture(autouse=True)
def live(run_dir: Path) -> Path:
    return run_dir


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("parallel")
    records = [{"id": i, "input_ids": [i + k for k in range(1 + i % WIDTH)]} for i in range(SAMPLES)]
    for shard, (first, end) in enumerate(((0, 70), (70, 71), (71, SAMPLES))):
        write(folder / f"{shard}.tfrecord", records[first:end])
    yield str(folder)
    shutil.rmtree(folder)


class Job:
    """All processes of a world on one node, each with its loader; numbers as Megatron has them."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, source: str | None, sizes: dict[str, int], **options: Any
    ) -> None:
        world = int(np.prod(list(sizes.values())))
        self.loaders: list[Loader] = []
        self.numbers: list[dict[str, tuple[int, int]]] = []
        for rank in range(world):
            rest, numbers = rank, {}
            for kind in ("tp", "cp", "dp", "pp"):
                size = sizes.get(kind, 1)
                numbers[kind], rest = (rest % size, size), rest // size
            for name, value in (("RANK", rank), ("LOCAL_RANK", rank), ("WORLD_SIZE", world)):
                monkeypatch.setenv(name, str(value))
            monkeypatch.setenv("LOCAL_WORLD_SIZE", str(world))
            stage, stages = numbers["pp"]
            self.numbers.append(numbers)
            options["deliver"] = stage in (0, stages - 1)
            sizes_given: dict[str, Any] = {"batch_size": 2, "global_batch_size": GLOBAL, "max_length": WIDTH}
            self.loaders.append(Loader(source, mesh=numbers, **sizes_given, **options))
        for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
            monkeypatch.delenv(name)
        self.iterators: list[Any] = [None] * world

    def step(self) -> list[dict[str, Any]]:
        """One step of every process, in an order that is not that of the ranks, over epoch borders."""
        batches: list[dict[str, Any]] = [{}] * len(self.loaders)
        for rank in sorted(range(len(self.loaders)), key=lambda r: r * 7 % 5):
            if self.iterators[rank] is None:
                self.iterators[rank] = self.loaders[rank].repeat()
            batches[rank] = next(self.iterators[rank])
        assert all(loader.state_dict() == self.loaders[0].state_dict() for loader in self.loaders)
        return batches

    def rows(self, steps: int) -> dict[int, list[int]]:
        """Whole rows of these steps by id, joined out of the slices; peers must have had the same."""
        found: dict[int, list[list[int]]] = {}
        for _ in range(steps):
            by_dp: dict[int, dict[int, list[int]]] = {}
            for batch, numbers, loader in zip(self.step(), self.numbers, self.loaders):
                if not batch:
                    assert 0 < numbers["pp"][0] < numbers["pp"][1] - 1
                    continue
                assert batch["input_ids"].shape == batch["attention_mask"].shape == (2, WIDTH // numbers["cp"][1])
                mine = by_dp.setdefault(numbers["dp"][0], {})
                for row, i in enumerate(batch["id"].tolist()):
                    whole = mine.setdefault(i, [-1] * 2 * WIDTH)
                    for column, first in (("input_ids", 0), ("attention_mask", WIDTH)):
                        for at, value in zip(loader.cp_positions.tolist(), batch[column][row].tolist()):
                            assert whole[first + at] in (-1, value), "peers were given different rows"
                            whole[first + at] = value
            for mine in by_dp.values():
                assert len(mine) == 2, "peers were given different rows"
                for i, whole in mine.items():
                    found.setdefault(i, []).append(whole)
        assert all(rows.count(rows[0]) == len(rows) for rows in found.values())
        return {i: [len(rows), *rows[0]] for i, rows in found.items()}

    def close(self) -> None:
        for loader in self.loaders:
            loader.close()


def expected_row(i: int) -> list[int]:
    count = 1 + i % WIDTH
    return [*range(i, i + count), *[0] * (WIDTH - count), *[1] * count, *[0] * (WIDTH - count)]


@pytest.mark.parametrize("split", ["zigzag", "contiguous"])
@pytest.mark.parametrize("order", [{}, WINDOWS], ids=["held", "window"])
def test_the_order_does_not_change_when_the_mesh_does(
    monkeypatch: pytest.MonkeyPatch, data: str, split: str, order: dict[str, Any]
) -> None:
    runs = []
    for sizes in MESHES:
        job = Job(monkeypatch, data, sizes, cp_split=split, seed=3, **order)
        accum = GLOBAL // (2 * sizes["dp"])
        assert all(loader.grad_accum == accum for loader in job.loaders)
        runs.append([job.rows(accum) for _ in range(30)])  # two epochs and a part
        job.close()
    for step, rows in enumerate(runs[0]):
        assert sum(row[0] for row in rows.values()) == GLOBAL
        assert all(row[1:] == expected_row(i) for i, row in rows.items()), f"step {step}"
    for run, sizes in zip(runs[1:], MESHES[1:]):
        assert run == runs[0], sizes


def decoded(
    monkeypatch: pytest.MonkeyPatch, data: str | None, sizes: dict[str, int], **options: Any
) -> tuple[int, int]:
    job = Job(monkeypatch, data, sizes, **options)
    for _ in range(2 * GLOBAL):
        job.step()
    stats = job.loaders[0].stats()["agent"]
    job.close()
    return stats["stages"]["decodedRows"], stats["sessions"]


def test_peers_share_what_was_decoded(monkeypatch: pytest.MonkeyPatch, data: str) -> None:
    assert decoded(monkeypatch, data, {"dp": 1}) == (SAMPLES, 1)
    assert decoded(monkeypatch, data, {"dp": 1, "tp": 4}) == (SAMPLES, 4)
    assert decoded(monkeypatch, data, {"dp": 2, "tp": 2, "cp": 2}) == (SAMPLES, 8)
    parts = {"a": {"path": f"{data}/0.tfrecord", "weight": 0.5}, "b": {"path": f"{data}/2.tfrecord", "weight": 0.5}}
    assert decoded(monkeypatch, None, {"dp": 2, "tp": 2}, mix={"sources": parts}) == (SAMPLES - 1, 4)


def test_a_killed_agent_is_a_pause_for_peers_too(monkeypatch: pytest.MonkeyPatch, data: str, run_dir: Path) -> None:
    whole = Job(monkeypatch, data, {"dp": 4}, **WINDOWS)
    job = Job(monkeypatch, data, {"dp": 2, "tp": 2}, **WINDOWS)
    for step in range(20):
        if step in (5, 11):
            end_agents(run_dir)
        assert job.rows(4) == whole.rows(2)
    assert all(loader.stats()["agent_deaths"] >= 1 for loader in job.loaders)
    whole.close()
    job.close()


@pytest.mark.parametrize("agent", ["auto", "none"])
def test_a_rank_without_data_keeps_step(
    monkeypatch: pytest.MonkeyPatch, data: str, run_dir: Path, agent: str, tmp_path: Path
) -> None:
    job = Job(monkeypatch, data, {"tp": 1, "pp": 4}, agent=agent, proof_dir=tmp_path)
    first, light = job.loaders[0], job.loaders[1]
    for _ in range(110):  # over an epoch border
        batches = job.step()
        assert batches[1] == batches[2] == {} and batches[0]["id"].tolist() == batches[3]["id"].tolist()
        assert light.epoch == first.epoch and light.position == first.position and len(light) == len(first)
    if agent == "auto":
        assert first.stats()["agent"]["sessions"] == 2, "a session, or memory, for a rank that takes nothing"
    assert light.stats()["batches"] == 110 and light.stats()["agent"] == {}
    state = first.state_dict(steps=100)
    assert light.state_dict(steps=100) == state
    assert [path.name.split("-")[0] for path in tmp_path.iterdir()] == ["0"]
    for loader in (first, light):
        loader.set_epoch(5)
    length = len(first)
    assert [len(list(loader)) for loader in (first, light)] == [length] * 2
    assert first.state_dict() == light.state_dict()
    light.load_state_dict(state)
    first.load_state_dict(state)
    assert len(list(light)) == len(list(first)) > 0 and first.state_dict() == light.state_dict()
    other = {**state, "seed": "7"}
    with pytest.raises(AthanorError, match="seed"):
        light.load_state_dict(other)
    job.close()


def test_one_of_the_peers_proves(monkeypatch: pytest.MonkeyPatch, data: str, tmp_path: Path) -> None:
    totals = []
    for number, sizes in enumerate(MESHES):
        folder = tmp_path / str(number)
        job = Job(monkeypatch, data, sizes, proof_dir=folder)
        for _ in range(6 * GLOBAL // (2 * sizes["dp"])):
            job.step()
        job.close()
        assert sorted(path.name.split("-")[0] for path in folder.iterdir()) == [str(r) for r in range(sizes["dp"])]
        totals.append(proof_total(str(folder)))
    assert totals == [totals[0]] * len(MESHES) and totals[0].rows == 6 * GLOBAL
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "8")
    with pytest.raises(ValueError, match="mesh must hold all dimensions of the job when proof_dir is given"):
        Loader(data, batch_size=2, dp_rank=0, dp_world_size=2, proof_dir=tmp_path)


def test_wrong_splits_are_refused(data: str) -> None:
    with pytest.raises(ValueError, match='max_length must be a multiple of 4 .* cp_split="zigzag", got 18'):
        Loader(data, batch_size=2, max_length=18, mesh={"dp": (0, 1), "cp": (0, 2)})
    with pytest.raises(ValueError, match="cp_split must be one of 'zigzag', 'contiguous', got 'ring'"):
        Loader(data, batch_size=2, cp_split="ring")


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_peers_with_workers(data: str) -> None:
    torch_data = pytest.importorskip("torch.utils.data")
    from athanor.torch import AthanorDataset

    peers = [AthanorDataset(data, batch_size=8, max_length=WIDTH, mesh={"dp": (0, 1), "cp": (rank, 2)}, **WINDOWS)
             for rank in range(2)]  # fmt: skip
    with Loader(data, batch_size=8, max_length=WIDTH, **WINDOWS) as loader:
        whole = [batch["input_ids"] for batch in loader]
    first, second = (torch_data.DataLoader(peer, batch_size=None, num_workers=2) for peer in peers)
    count = 0
    for a, b, expected in zip(first, second, whole):
        quarter = WIDTH // 4
        parts = [a["input_ids"][:, :quarter], b["input_ids"], a["input_ids"][:, quarter:]]
        assert np.concatenate(parts, axis=1).tolist() == expected.tolist()
        count += 1
    assert count == len(whole) == 26
    for peer in peers:
        peer.close()


def test_a_device_mesh_of_torch(data: str, tmp_path: Path) -> None:
    pytest.importorskip("torch.distributed")
    paths = os.pathsep.join([str(ROOT / "python/src"), str(ROOT / "python/tests")])
    done = subprocess.run([sys.executable, "-c", PROGRAM, data, str(tmp_path), str(WIDTH)], timeout=300, text=True,
                          env={**os.environ, "PYTHONPATH": paths}, capture_output=True)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(4)]
    with Loader(data, batch_size=GLOBAL, max_length=WIDTH) as loader:
        steps = [sorted(batch["id"].tolist()) for batch in loader][:5]
    for way in ("dp×tp", "dp_replicate×dp_shard", "dp×cp", "group", "part"):
        dp = [rank[way]["dp"] for rank in ranks]
        assert dp == ([0, 1, 2, 3] if way == "dp_replicate×dp_shard" else [0, 0, 1, 1]), way
        for step, ids in enumerate(steps):
            by_dp = {rank[way]["dp"]: rank[way]["ids"][step] for rank in ranks}
            assert sorted(i for part in by_dp.values() for i in part) == ids, way
            assert all(rank[way]["ids"][step] == by_dp[rank[way]["dp"]] for rank in ranks), way
    # Four sessions, and one decoding of everything that the first loader of the job had opened.
    assert {rank["dp×tp"]["decoded"] for rank in ranks} == {SAMPLES}
    assert [rank["dp×cp"]["positions"] for rank in ranks] == [
        [0, 1, 2, 3, 12, 13, 14, 15],
        [4, 5, 6, 7, 8, 9, 10, 11],
    ] * 2
