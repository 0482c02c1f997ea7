"""Mixtures under `Loader(agent="none")` against the real agent: phases, ramps, appended shards, world sizes."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from athanor.numpy import Loader
from test_reference_loader import assert_same, run
from tfrecord_writer import write
from token_writer import write_pair

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def live(run_dir: Path) -> Path:
    return run_dir


def grow(folder: Path, rng: random.Random, name: str, shard: int, count: int) -> None:
    folder.mkdir(exist_ok=True)
    big = 2**40 if name == "code" else 70_000  # stored in 64 bits there, in 32 elsewhere
    records = (
        {"id": shard * 1000 + i, "input_ids": [rng.choice([1, 300, big]) for _ in range(rng.randint(1, 9))], name: 1}
        for i in range(count)
    )
    write(folder / f"{shard}.tfrecord", records)


def index(folder: Path) -> None:
    subprocess.run(["node", str(ROOT / "dist/src/cli/main.js"), "index", str(folder)], check=True, capture_output=True)


@pytest.mark.parametrize("seed", range(4))
def test_mixtures_are_those_of_the_agent_through_loads_and_appended_shards(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    sources = {name: tmp_path / name for name in ("web", "code", "math")}
    for name, folder in sources.items():
        for shard in range(rng.randint(1, 3)):
            grow(folder, rng, name, shard, rng.choice([1, 20, 60]))
    chosen = ["web"] if seed == 2 else ["web", "code", "math"][: rng.randint(2, 3)]
    shuffle: dict[str, Any] = rng.choice([{"lanes": 4, "shuffle_memory": 4096}, {"window": 9}, {"shuffle": "none"}, {}])
    options: dict[str, Any] = {"seed": rng.getrandbits(64), "max_length": 6, **shuffle}
    if seed % 2 == 0:  # else: what all sources have, which a new source may change: then the view is another one
        options["columns"] = ["attention_mask", "id", "input_ids"]
    state: dict[str, Any] | None = None
    for load in range(3):
        if load > 0:
            new = [name for name in sources if name not in chosen]
            chosen += new[:1] if seed % 2 == 0 else []
            name = rng.choice(chosen)
            grow(sources[name], rng, name, 5 + load, rng.randint(1, 30))
        for name in chosen:
            index(sources[name])
        weights = {name: rng.choice([1, 2, 0.3]) for name in chosen}
        mix = {
            "sources": {name: {"path": str(sources[name]), "weight": weights[name]} for name in chosen},
            "weights_by": rng.choice(["samples", "tokens"]),
            "phases": [{"after_samples": rng.randint(20, 150), "weights": dict.fromkeys(chosen, 1)}],
        }
        world, batch = rng.choice([(1, 4), (2, 2), (4, 1), (8, 1)])
        step = world * batch
        ramp = [(0, step * rng.choice([1, 2])), (rng.randint(10, 90), step * 3)]
        more = {"mix": mix, "global_batch_size": ramp, "state": state, "batch_size": batch, **options}
        steps = rng.choice([7, 200 // step])
        expected = run("auto", None, world, steps, tmp_path / f"a{load}", **more)
        found = run("none", None, world, steps, tmp_path / f"b{load}", **more)
        assert_same(found, expected)
        state = (expected, found)[load % 2].states[0]  # each goes on from the other's
        # At the end of an optimizer batch, so that the next load may be of any world size.
        with Loader(agent="none", **(more | {"state": state, "world_size": world, "rank": 0})) as loader:
            walk = loader.repeat()
            while any(int(loader.state_dict()["position"]) % size for size in (8, 16, 24)):
                next(walk)
                if loader.position > int(state["position"]) + 600:
                    pytest.fail("no common border")
            state = loader.state_dict()


def test_a_mixture_of_formats_in_plain_python(tmp_path: Path) -> None:
    rng = random.Random(1)
    for shard in range(2):
        grow(tmp_path / "records", rng, "web", shard, 40)
    (tmp_path / "stream").mkdir()
    np.save(tmp_path / "stream/a.npy", np.arange(1000, dtype="<u2"))
    (tmp_path / "documents").mkdir()
    write_pair(tmp_path / "documents/b", [[i] * (i % 9) for i in range(100)], "<i4")
    names = ("records", "stream", "documents")
    sources = {name: {"path": str(tmp_path / name), "weight": 1} for name in names}
    with Loader(agent="none", mix={"sources": sources}, batch_size=6, max_length=8, identities=True) as loader:
        counts = np.zeros(3, int)
        tokens: set[int] = set()
        steps = len(loader)
        for step, batch in enumerate(loader, 1):
            assert set(batch) - {"_position", "_shard_key", "_record", "_source"} == {"input_ids", "attention_mask"}
            counts += np.bincount(batch["_source"], minlength=3)
            assert np.abs(counts - step * 2).max() <= 1
            rows = batch["input_ids"][batch["_source"] == 1], batch["attention_mask"][batch["_source"] == 1]
            tokens.update(rows[0][rows[1] == 1].tolist())
        assert loader.samples == 80 + 125 + 88
        assert steps == -(-(80 + 125 + 88) // 6)
        assert len(tokens) >= 8 * 98  # of the stream: as many samples as its third of an epoch
