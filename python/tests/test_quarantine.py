"""Bad records under a running job: the agent and `agent="none"` replace the same ones by the same ones."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from athanor.errors import AthanorError
from athanor.numpy import Loader
from athanor.reference.ledger import read_ledger
from conftest import ROOT
from tfrecord_writer import example, frame, write

REPLACE: dict[str, Any] = {"on_corrupt": "replace", "corrupt_quota": 10_000}


@pytest.fixture(autouse=True)
def live(run_dir: Path) -> Path:
    return run_dir


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """small: two shards, one a gzip stream. blocks: two shards of several blocks."""
    folder = tmp_path_factory.mktemp("sound")
    rng = random.Random(3)
    for name in ("small", "blocks"):
        (folder / name).mkdir()
    write(
        folder / "small" / "a.tfrecord",
        ({"id": i, "input_ids": [i] * rng.randint(0, 9), "weight": [i / 7]} for i in range(300)),
    )
    write(folder / "small" / "b.tfrecord", ({"id": i, "input_ids": [i] * 5, "weight": [0.5]} for i in range(300, 420)))
    frames = [frame(example({"id": i, "input_ids": [i] * i, "text": "x" * (16_000 + 1400 * i)})) for i in range(16)]
    for shard, count in enumerate((400, 300)):
        (folder / "blocks" / f"{shard}.tfrecord").write_bytes(b"".join(rng.choice(frames) for _ in range(count)))
    return {name: folder / name for name in ("small", "blocks")}


def frames_of(data: bytes) -> list[int]:
    found = [0]
    while found[-1] < len(data):
        found.append(found[-1] + 16 + int(struct.unpack_from("<Q", data, found[-1])[0]))
    return found


def damaged(data: bytes, rng: random.Random, hits: int, first: int = 0) -> bytes:
    """Bytes of payloads, their CRCs, lengths and their CRCs, of records from `first` on."""
    frames = frames_of(data)
    out = bytearray(data)
    for _ in range(hits):
        record = rng.randrange(first, len(frames) - 1)
        begin, end = frames[record], frames[record + 1]
        at = rng.choice([begin + rng.randrange(8), begin + 8 + rng.randrange(4), rng.randrange(begin + 12, end)])
        out[at] ^= rng.randint(1, 255)
    return bytes(out)


def bad_copy(source: Path, target: Path, rng: random.Random, hits: int) -> Path:
    """Indexed as it was, then damaged under the same sizes and times."""
    shutil.copytree(source, target)
    with Loader(target, batch_size=1, columns=["id"]) as loader:
        len(loader)
    for path in sorted(target.glob("*.tfrecord")):
        stat = path.stat()
        path.write_bytes(damaged(path.read_bytes(), rng, hits))
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    return target


Step = list[dict[str, Any]]


def run(agent: str, source: Path, world: int, steps: int, ledger: Path, **options: Any) -> tuple[list[Step], Any, int]:
    """Batches by step and rank, the state behind them, and rows in which another record stood in."""
    loaders = [
        Loader(source, agent=agent, rank=rank, world_size=world, identities=True, proof_dir=ledger, **options)
        for rank in range(world)
    ]
    walks = [loader.repeat() for loader in loaders]
    batches = [[next(walk) for walk in walks] for _ in range(steps)]
    replaced = sum(loader.stats()["quarantined"] for loader in loaders)
    state = loaders[0].state_dict()
    for loader in loaders:
        loader.close()
    return batches, state, replaced


def assert_same(found: list[Step], expected: list[Step]) -> None:
    assert len(found) == len(expected)
    for step, (mine, theirs) in enumerate(zip(found, expected)):
        for rank, (a, b) in enumerate(zip(mine, theirs)):
            for name in b:
                assert np.array_equal(a[name], b[name]), (step, rank, name, a[name], b[name])


def ids_by_position(step: Step) -> dict[int, int]:
    return {int(position): int(i) for batch in step for position, i in zip(batch["_position"], batch["id"])}


def ledger_of(folder: Path) -> dict[tuple[str, int], Any]:
    """Entries by shard and record."""
    return {(entry["shard"], entry["record"]): entry for entry in read_ledger(str(folder))}


@pytest.mark.parametrize("seed", range(6))
def test_choices_are_those_of_the_reference(sound: dict[str, Path], tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    name = ("small", "blocks")[seed % 2]
    source = bad_copy(sound[name], tmp_path / "data", rng, rng.choice([1, 6, 30]))
    world, batch = rng.randint(1, 4), rng.choice([3, 5])
    options: dict[str, Any] = {"batch_size": batch, "seed": seed, "max_length": 8, **REPLACE}
    options |= rng.choice([{"shuffle": "none"}, {"lanes": 3, "window": 40}, {}])
    steps = (700 if name == "blocks" else 500) // (world * batch)  # to the end of the first epoch at least
    expected, state, replaced = run("none", source, world, steps, tmp_path / "none", **options)
    found, agent_state, agent_replaced = run("auto", source, world, steps, tmp_path / "auto", **options)
    assert_same(found, expected)
    assert (agent_state["position"], agent_replaced) == (state["position"], replaced)
    assert replaced > 0
    mine, theirs = ledger_of(tmp_path / "none"), ledger_of(tmp_path / "auto")
    assert mine == theirs  # all samples were wanted
    for (shard, record), entry in theirs.items():
        assert (entry["replacement"]["shard"], entry["replacement"]["record"] != record) == (shard, True)
    lines = [path.read_text().splitlines() for path in sorted((tmp_path / "auto").glob("quarantine-*"))]
    assert sum(map(len, lines)) == len(theirs)  # each once

    # Another world size, and a start at any step: the same samples behind the same positions.
    total = world * batch
    for other in (n for n in (1, 2, 3, 4) if total % n == 0 and n != world):
        begin = rng.randrange(steps - 3)
        agent, of = rng.choice([("auto", agent_state), ("none", state)])
        at = of | {"position": str(begin * total)}
        options |= {"batch_size": total // other, "state": at}
        again, _, _ = run(agent, source, other, 3, tmp_path / f"w{other}", **options)
        for step, reference in zip(again, expected[begin:]):
            ids = [
                {int(p): int(i) for b in ranks for p, i in zip(b["_position"], b["id"])} for ranks in (step, reference)
            ]
            assert ids[0] == ids[1]


@pytest.mark.parametrize("seed", range(2))
def test_an_index_of_damaged_data_is_the_same_from_both(sound: dict[str, Path], tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    source = tmp_path / "data"
    source.mkdir()
    for path in sound["small"].iterdir():
        data = damaged(path.read_bytes(), rng, 6, first=1)  # a shard whose first length is damaged is no TFRecord
        (source / path.name).write_bytes(gzip.compress(data) if path.name == "b.tfrecord" else data)
    with pytest.raises(AthanorError) as caught, Loader(source, batch_size=4) as loader:
        len(loader)
    assert caught.value.code in ("ATH_RECORD_CRC", "ATH_RECORD_TRUNCATED", "ATH_RECORD_TOO_LONG")
    assert not (source / ".athanor").exists()
    options: dict[str, Any] = {"batch_size": 4, "seed": 1, "max_length": 8, **REPLACE}
    expected, state, replaced = run("none", source, 2, 60, tmp_path / "none", **options)
    assert not (source / ".athanor").exists()
    found, agent_state, agent_replaced = run("auto", source, 2, 60, tmp_path / "auto", **options)
    assert_same(found, expected)
    assert (agent_state["position"], agent_replaced) == (state["position"], replaced)
    assert replaced > 0
    # The index is there now: a loader that replaces nothing opens it too, and names the first bad record that it meets.
    with pytest.raises(AthanorError) as caught, Loader(source, batch_size=4, max_length=8) as loader:
        for _ in loader:
            pass
    assert caught.value.record is not None


def test_resume_at_every_step_makes_the_same_choices(sound: dict[str, Path], tmp_path: Path) -> None:
    source = bad_copy(sound["small"], tmp_path / "data", random.Random(5), 12)
    options: dict[str, Any] = {"batch_size": 20, "seed": 4, "columns": ["id"], "lanes": 2, "window": 30, **REPLACE}
    with Loader(source, proof_dir=tmp_path / "whole", **options) as loader:
        walk = loader.repeat()
        states, whole = [], []
        for _ in range(24):
            states.append(loader.state_dict())
            whole.append(next(walk)["id"].tolist())
    assert len(set(whole[0])) > 1
    for step in range(0, 22, 2):
        with Loader(source, ledger_dir=tmp_path / "resumed", state=states[step], **options) as loader:
            walk = loader.repeat()
            assert [next(walk)["id"].tolist() for _ in range(2)] == whole[step : step + 2]
    # Over all those starts each bad record is in the ledger once, with one choice.
    lines = [(entry["shard"], entry["record"]) for entry in read_ledger(str(tmp_path / "resumed"))]
    assert len(lines) == len(set(lines)) > 0
    assert ledger_of(tmp_path / "resumed").items() <= ledger_of(tmp_path / "whole").items()


@pytest.mark.parametrize("agent", ["auto", "none"])
def test_quota_counts_over_resumes_and_names_file_and_record(
    sound: dict[str, Path], tmp_path: Path, agent: str
) -> None:
    source = tmp_path / "data"
    shutil.copytree(sound["small"], source)
    with Loader(source, batch_size=1, columns=["id"]) as loader:
        len(loader)
    path = source / "a.tfrecord"
    stat, data = path.stat(), bytearray(path.read_bytes())
    begins = frames_of(bytes(data))
    for record in (40, 90, 280):
        data[begins[record] + 13] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    options: dict[str, Any] = {"batch_size": 10, "columns": ["id"], "agent": agent, "on_corrupt": "replace"}
    ledger = tmp_path / "ledger"

    def epoch(quota: int) -> int:
        with Loader(source, shuffle="none", ledger_dir=ledger, corrupt_quota=quota, **options) as loader:
            ids = [int(i) for batch in loader for i in batch["id"]]
            assert len(ids) == 420
            assert (ids.count(41), ids.count(91), ids.count(281)) == (2, 2, 2)
            return int(loader.stats()["quarantined"])

    with pytest.raises(AthanorError) as caught:
        epoch(2)
    error = caught.value
    assert (error.code, error.file) == ("ATH_QUARANTINE_QUOTA", str(path))
    assert error.record in (40, 90, 280)
    assert "corrupt_quota" in str(error)
    assert len(ledger_of(ledger)) <= 2
    assert epoch(3) == 3
    assert epoch(3) == 3  # the same ones again: nothing new
    assert sorted(record for _, record in ledger_of(ledger)) == [40, 90, 280]


def test_case_03_a_skip_policy_counts_the_skip(tmp_path: Path) -> None:
    case = Path(__file__).resolve().parents[2] / "test" / "fixtures" / "cases" / "03-tfrecord-payload-crc"
    expected = json.loads((case / "expected.json").read_text())["error"]
    data = tmp_path / "data"
    data.mkdir()
    shutil.copy(case / expected["file"], data)
    with pytest.raises(AthanorError) as caught, Loader(data, batch_size=1) as loader:
        len(loader)
    error = caught.value
    assert (error.code, error.record, error.byte_offset) == (
        "ATH_RECORD_CRC", expected["record"], expected["byte_offset"],
    )  # fmt: skip
    records = len(frames_of((data / expected["file"]).read_bytes())) - 1
    for agent in ("none", "auto"):
        proof = tmp_path / agent
        with Loader(
            data, batch_size=1, shuffle="none", on_corrupt="replace", proof_dir=proof, identities=True, agent=agent
        ) as loader:
            assert len(loader) == records
            seen = [int(batch["_record"][0]) for batch in loader]
            assert loader.stats()["quarantined"] == 1
        bad = expected["record"]
        assert seen == [bad + 1 if record == bad else record for record in range(records)]
        (entry,) = read_ledger(str(proof))
        assert entry == {
            "source": "data",
            "shard": expected["file"],
            "record": bad,
            "byteOffset": expected["byte_offset"],
            "code": "ATH_RECORD_CRC",
            "replacement": {"shard": expected["file"], "record": bad + 1},
        }


def test_random_access_replaces_too(sound: dict[str, Path], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from athanor.torch import DeepSeekDataset

    source = bad_copy(sound["small"], tmp_path / "data", random.Random(9), 5)
    found = []
    for agent in ("auto", "none"):
        samples = DeepSeekDataset(source, max_length=8, columns=["id"], agent=agent, ledger_dir=tmp_path, **REPLACE)
        found.append([int(sample["id"]) for sample in samples.__getitems__(list(range(len(samples))))])
        samples.close()
    assert found[0] == found[1]
    assert sum(1 for i, sample in enumerate(found[0]) if i != sample) > 0


def test_replacing_needs_a_folder_to_write_it_down(tmp_path: Path) -> None:
    for wrong, words in (
        ({"on_corrupt": "replace"}, "ledger_dir must name a folder"),
        ({"on_io_error": "replace"}, "ledger_dir must name a folder"),
        ({"on_corrupt": "skip"}, "on_corrupt must be one of"),
        ({"on_io_error": True}, "on_io_error must be one of"),
        ({"corrupt_quota": 0}, "corrupt_quota must be"),
    ):
        with pytest.raises(ValueError, match=words):
            Loader(tmp_path, batch_size=1, **wrong)  # type: ignore[arg-type]


def verify(proof: Path, *data: str) -> tuple[int, dict[str, Any]]:
    """Exit code and output of `athanor state verify`."""
    words = [part for path in data for part in ("--data", path)]
    command = ["node", str(ROOT / "bin" / "athanor.mjs"), "state", "verify", str(proof), *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.returncode, json.loads((done.stdout or done.stderr).splitlines()[0])


def test_proof_is_verified_with_the_ledger_and_fails_without(sound: dict[str, Path], tmp_path: Path) -> None:
    """Also for a mixture, of which both sources hold bad records under the same names."""
    rng = random.Random(8)
    plain, more = (bad_copy(sound["small"], tmp_path / name, rng, 9) for name in ("plain", "more"))
    mix = {
        "version": 1,
        "sources": {"a": {"path": str(plain), "weight": 0.4}, "b": {"path": str(more), "weight": 0.6}},
    }
    for name, source, data in (
        ("one", {"source": plain}, [str(plain)]),
        ("mix", {"mix": mix}, [f"a={plain}", f"b={more}"]),
    ):
        proof = tmp_path / name
        options: dict[str, Any] = {"batch_size": 12, "columns": ["id"], "lanes": 2, "window": 40, **source, **REPLACE}
        with Loader(proof_dir=proof, **options) as loader:
            walk = loader.repeat()
            for _ in range(90):
                next(walk)
            replaced = loader.stats()["quarantined"]
        code, report = verify(proof, *data)
        assert (code, report["steps"], report["replaced"]) == (0, 90, replaced)
        sources = {entry["source"] for entry in read_ledger(str(proof))}
        assert sources == ({"data"} if name == "one" else {"a", "b"})
        for path in proof.glob("quarantine-*"):
            path.rename(tmp_path / "away")
        code, report = verify(proof, *data)
        assert (code, report["steps"] < 90) == (1, True)
