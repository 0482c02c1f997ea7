"""`Loader(agent="none")` against the real agent: equal batches, identities, states and proofs, in both directions."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from athanor.errors import AthanorError
from athanor.numpy import Loader
from conftest import agents_in
from tfrecord_writer import example, frame, write


@pytest.fixture(autouse=True)
def live(run_dir: Path) -> Path:
    return run_dir


def record(rng: random.Random, number: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": number,
        "input_ids": [rng.choice([1, 300, 70_000, 2**40]) for _ in range(rng.randint(0, 12))],
        "labels": [rng.randint(0, 200) for _ in range(rng.randint(0, 12))],
        "mask": [1] * rng.randint(0, 9) + [0] * rng.randint(0, 3),
        "weight": [rng.random() for _ in range(rng.randint(1, 3))],
        "text": "nicht als Zahl",
    }
    if rng.random() < 0.2:
        found["labels"] = rng.choice([None, []])
    return found


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """small: many kinds of columns, empty shards. streams: gzip and zlib among them. blocks: several a shard."""
    rng = random.Random(11)
    folder = tmp_path_factory.mktemp("sets")
    for name in ("small", "streams", "blocks"):
        (folder / name / "sub").mkdir(parents=True)
    number = 0
    for name in ("small", "streams"):
        for shard, count in enumerate((70, 0, 1, 130, 0, 33, 90)):
            path = folder / name / ("sub" if shard % 3 == 0 else "") / f"{shard}.tfrecord"
            write(path, (record(rng, number + i) for i in range(count)))
            number += count
            if name == "streams" and shard % 2 == 0:
                raw = path.read_bytes()
                path.write_bytes(
                    zlib.compress(raw) if shard == 4 else gzip.compress(raw[:500]) + gzip.compress(raw[500:])
                )
    frames = [frame(example({"id": i, "input_ids": [i] * i, "text": "x" * (16_000 + 1400 * i)})) for i in range(16)]
    for shard, count in enumerate((500, 3, 900)):
        chosen = b"".join(rng.choice(frames) for _ in range(count))
        (folder / "blocks" / f"{shard}.tfrecord").write_bytes(chosen)
    yield {name: str(folder / name) for name in ("small", "streams", "blocks")}
    shutil.rmtree(folder)


class Run(NamedTuple):
    batches: list[list[dict[str, Any]]]  # by step, then by rank
    states: list[dict[str, Any]]
    proofs: list[list[str]]  # lines of each rank
    truncated: list[int]


def run(agent: str, source: str | None, world: int, steps: int, proof: Path, **options: Any) -> Run:
    loaders = [
        Loader(
            source, agent=agent, rank=rank, world_size=world, identities=True, proof_dir=proof / str(rank), **options
        )
        for rank in range(world)
    ]
    walks = [loader.repeat() for loader in loaders]
    batches = [[next(walk) for walk in walks] for _ in range(steps)]
    states = [loader.state_dict() for loader in loaders]
    truncated = [loader.stats()["truncated"] for loader in loaders]
    for loader in loaders:
        loader.close()
    lines = []
    for rank in range(world):
        (path,) = (proof / str(rank)).iterdir()
        header, *rest = path.read_text().splitlines()
        kept = {key: value for key, value in json.loads(header).items() if key != "time"}
        lines.append([json.dumps(kept), *rest])
    return Run(batches, states, lines, truncated)


def assert_same(found: Run, expected: Run) -> None:
    for step, (mine, theirs) in enumerate(zip(found.batches, expected.batches)):
        for rank, (a, b) in enumerate(zip(mine, theirs)):
            assert list(a) == list(b)
            for name in b:
                assert a[name].dtype == b[name].dtype, name
                assert np.array_equal(a[name], b[name]), (step, rank, name, a[name], b[name])
    assert found.states == expected.states
    assert found.proofs == expected.proofs
    assert found.truncated == expected.truncated


def random_options(rng: random.Random, name: str) -> dict[str, Any]:
    options: dict[str, Any] = {"seed": rng.getrandbits(64), "last": rng.choice(["carry", "carry", "drop", "pad"])}
    mode = rng.choice(["window", "none", "held", "lanes"] + (["global", "unit"] if name == "blocks" else []))
    if mode == "none":
        options["shuffle"] = "none"
    elif mode == "lanes":
        options["lanes"] = rng.randint(1, 9)
    elif mode == "window":
        options["window"] = rng.choice([1, 7, 50, 10_000])
    elif mode == "global":
        options |= {"shuffle": "global", "shuffle_memory": 1}
    elif mode == "unit":
        options |= {"unit": "shard", "shuffle_memory": 1 << 12}
    options["max_length"] = rng.choice([1, 5, 16])
    if rng.random() < 0.3:
        options["columns"] = rng.choice([["id"], ["attention_mask", "id", "input_ids"]])
    options["pad_id"] = rng.choice([0, -1, 50_256])
    return options


@pytest.mark.parametrize("seed", range(14))
def test_batches_states_and_proofs_are_those_of_the_agent(sets: dict[str, str], tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    name = ("small", "streams", "blocks")[seed % 3]
    options = random_options(rng, name)
    world, batch = rng.randint(1, 8), rng.choice([1, 2, 3])
    accum = rng.choice([1, 1, 2])
    options["global_batch_size"] = total = world * batch * accum
    steps = rng.randint(1, 12)
    if rng.random() < 0.4:  # into the next epochs
        steps = 700 // (world * batch)
    expected = run("auto", sets[name], world, steps, tmp_path / "a", batch_size=batch, **options)
    found = run("none", sets[name], world, steps, tmp_path / "b", batch_size=batch, **options)
    assert_same(found, expected)

    # Each goes on from the other's state: at the same step, and at another world size from the next optimizer batch.
    for other in (world, rng.choice([n for n in range(1, 9) if total % n == 0])):
        here = [state for state in expected.states[:1] if int(state["position"]) % total == 0 or other == world]
        for state in here:
            options |= {"state": state, "batch_size": batch if other == world else total // other}
            a = run(
                "auto", sets[name], other, 5, tmp_path / f"c{other}{batch}", **(options | {"state": found.states[0]})
            )
            b = run("none", sets[name], other, 5, tmp_path / f"d{other}{batch}", **options)
            assert_same(b, a)
            shutil.rmtree(tmp_path / f"c{other}{batch}")
            shutil.rmtree(tmp_path / f"d{other}{batch}")


def test_epochs_lengths_loads_and_set_epoch_are_those_of_the_agent(sets: dict[str, str]) -> None:
    for last in ("carry", "drop", "pad"):
        walked = []
        for agent in ("auto", "none"):
            options: dict[str, Any] = {"batch_size": 9, "grad_accum": 2, "columns": ["id"], "seed": 3, "lanes": 2}
            with Loader(sets["streams"], agent=agent, last=last, window=30, **options) as loader:
                seen: list[Any] = [len(loader), loader.samples, loader.grad_accum]
                seen += [batch["id"].tolist() for batch in loader]
                state = loader.state_dict()
                loader.set_epoch(3)
                seen += [len(loader), [batch["id"].tolist() for batch in loader], loader.state_dict()]
                loader.load_state_dict(state)
                seen += [next(iter(loader))["id"].tolist(), loader.epoch, loader.position, loader.state_dict()]
                walked.append(seen)
        assert walked[0] == walked[1]


def test_map_style_access_and_worker_strides_need_no_agent(
    sets: dict[str, str], live: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = pytest.importorskip("torch.utils.data")
    from athanor.torch import AthanorDataset, DeepSeekDataset

    monkeypatch.setenv("ATHANOR_AGENT", "none")
    samples = DeepSeekDataset(sets["streams"], max_length=8, columns=["id"])
    assert [int(samples[i]["id"]) for i in (0, 323, 5)] == [394, 647, 529]  # 2.tfrecord comes before sub/0.tfrecord
    plain = [batch["id"].tolist() for batch in Loader(sets["small"], batch_size=8, seed=1, columns=["id"])]
    dataset = AthanorDataset(sets["small"], batch_size=8, seed=1, columns=["id"])
    loader = data.DataLoader(dataset, batch_size=None, num_workers=2)
    assert [batch["id"].tolist() for batch in loader] == plain
    assert agents_in(live) == []
    assert os.listdir(live) == []


def test_data_without_an_index_is_read_and_left_as_it_is(tmp_path: Path) -> None:
    rng = random.Random(4)
    write(tmp_path / "a.tfrecord", (record(rng, i) for i in range(200)))
    options: dict[str, Any] = {"batch_size": 8, "seed": 5, "max_length": 6, "lanes": 2}
    with Loader(tmp_path, agent="none", **options) as loader:
        found, state = [batch["id"].tolist() for batch in loader], loader.state_dict()
    assert os.listdir(tmp_path) == ["a.tfrecord"]
    with Loader(tmp_path, **options) as loader:  # the agent writes one: the same fingerprints
        assert [batch["id"].tolist() for batch in loader] == found
        assert loader.state_dict() == state


def error_of(source: Path, agent: str, **options: Any) -> AthanorError:
    with pytest.raises(AthanorError) as caught, Loader(source, agent=agent, batch_size=4, **options) as loader:
        for _ in loader:
            pass
    return caught.value


def test_errors_are_those_of_the_agent(tmp_path: Path) -> None:
    rng = random.Random(4)
    folder = tmp_path / "d"
    folder.mkdir()
    path = folder / "a.tfrecord"
    write(path, (record(rng, i) for i in range(50)))
    with Loader(folder, batch_size=4, seed=1) as loader:
        state = loader.state_dict()
    broken = {
        "another seed": {"seed": 2, "state": state},
        "another view": {"seed": 1, "state": state, "max_length": 9},
        "no state": {"state": state | {"segments": [{}]}},
        "old version": {"state": state | {"sources": [{"name": "data", "view": "x", "samples": "1"}]}},
        "unknown column": {"columns": ["nothing"]},
        "text": {"columns": ["text"]},
        "lanes": {"shuffle": "none", "lanes": 2},
        "too long": {"max_length": 3, "strict": True},
        "missing index folder": {"index_dir": tmp_path / "nowhere", "columns": ["no"]},
    }
    for name, options in broken.items():
        mine, theirs = error_of(folder, "none", **options), error_of(folder, "auto", **options)
        assert (mine.code, type(mine), mine.file) == (theirs.code, type(theirs), theirs.file), name
    for source in (tmp_path / "missing", tmp_path / "*.none", tmp_path / "empty"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        assert error_of(source, "none").code == error_of(source, "auto").code

    stat, raw = path.stat(), path.read_bytes()
    path.write_bytes(raw[:600] + bytes([raw[600] ^ 4]) + raw[601:])
    assert error_of(folder, "none").code == "ATH_SHARD_CHANGED"
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # damage that only the checksum shows
    mine, theirs = error_of(folder, "none", shuffle="none"), error_of(folder, "auto", shuffle="none")
    fields = (mine.code, mine.file, mine.record, mine.byte_offset)
    assert fields == (theirs.code, theirs.file, theirs.record, theirs.byte_offset)
    write(folder / "b.tfrecord", [record(rng, 0)])
    assert error_of(folder, "none").code == error_of(folder, "auto").code == "ATH_INDEX_STALE"


def test_an_override_begins_a_new_order_where_the_agent_does(sets: dict[str, str]) -> None:
    states = []
    for agent in ("auto", "none"):
        with Loader(sets["small"], batch_size=4, seed=1, agent=agent) as loader:
            walk = iter(loader)
            for _ in range(3):
                next(walk)
            state = loader.state_dict()
        with Loader(sets["small"], batch_size=6, seed=2, agent=agent) as loader:
            loader.load_state_dict(state, override=True)
            states.append((loader.state_dict(), next(iter(loader))["id"].tolist()))
    assert states[0] == states[1]
