"""Readers of `.npy` and Megatron: cases from the field, faults, and random sets fed by `Loader(agent="none")`."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from athanor.errors import AthanorError
from athanor.numpy import Loader
from athanor.reference import read_megatron
from athanor.reference.crc import crc32c
from athanor.reference.files import discover
from athanor.reference.scan import scan_all
from token_writer import Taken, make, rows_of, step_of, write_pair

CASES = Path(__file__).resolve().parents[2] / "test/fixtures/cases"


@pytest.fixture(autouse=True)
def alone(run_dir: Path) -> Path:
    return run_dir


def feed(source: Path, **options: Any) -> list[list[int]]:
    """Samples of one epoch in file order."""
    options = {"shuffle": "none", "last": "pad", "batch_size": 1, "max_length": 4} | options
    with Loader(source, agent="none", **options) as loader:
        return [row for batch in loader for row in rows_of(batch)]


# -- cases from the field


def case(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CASES / name / "expected.json").read_text())
    return found


def faults() -> list[tuple[str, dict[str, Any]]]:
    return [
        (name, expected)
        for name in ("47-megatron-dtype-codes", "49-megatron-pointer-overflow", "50-megatron-bad-merge")
        for expected in case(name)["error"]
    ]


def test_case_47_values_by_code() -> None:
    folder = CASES / "47-megatron-dtype-codes"
    expected = case(folder.name)
    hasher = hashlib.sha256()
    for stem, records in expected["records"].items():
        documents = [document.tolist() for document in read_megatron(str(folder / f"{stem}.bin"))]
        assert documents == records
        hasher.update(np.array(sum(documents, []), "<i8").tobytes())
        if stem != "code2":  # holds -128, which is no token id
            assert feed(folder / f"{stem}.bin") == records
    assert hasher.hexdigest() == expected["sha256_le_i64"]


@pytest.mark.parametrize(
    ("folder", "expected"), faults(), ids=lambda value: value if isinstance(value, str) else value["file"]
)
def test_cases_47_49_50_errors_name_file_record_byte_and_numbers(folder: str, expected: dict[str, Any]) -> None:
    file = CASES / folder / expected["file"]
    with pytest.raises(AthanorError) as caught:
        feed(file)
    error = caught.value
    assert error.file == str(file)
    for wanted in (outcome for outcome in expected.get("any_of", [expected]) if outcome.get("record") == error.record):
        assert wanted.get("byte_offset", error.byte_offset) == error.byte_offset
        numbers = [
            word for word in wanted["cause"].replace("(", " ").replace(",", " ").split() if word.lstrip("-").isdigit()
        ]
        assert all(number in error.what for number in numbers), (error.what, numbers)
        break
    else:
        pytest.fail(f"record {error.record}, expected {expected}")


# -- faults of our own


def npy(path: Path, array: Any) -> bytes:
    np.save(path, array)
    return path.read_bytes()


def test_npy_faults_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    whole = npy(path, np.arange(100, dtype="<i4"))
    size = len(whole)
    broken: dict[str, tuple[bytes, str, int | None, int | None]] = {
        "cut": (whole[:-3], "ATH_SHARD_TRUNCATED", None, size - 3),
        "cut header": (whole[:50], "ATH_SHARD_TRUNCATED", None, 50),
        "cut magic": (whole[:9], "ATH_SHARD_TRUNCATED", None, 9),
        "longer": (whole + b"xx", "ATH_SHARD_INVALID", None, size),
        "no dict": (whole.replace(b"'shape'", b"'shade'"), "ATH_SHARD_INVALID", None, 10),
        "no literal": (whole.replace(b"(100,)", b"(f(),)"), "ATH_SHARD_INVALID", None, 10),
        "strange type": (whole.replace(b"<i4", b"<q9"), "ATH_SHARD_INVALID", None, 10),
        "version": (whole[:6] + b"\x04" + whole[7:], "ATH_FORMAT_UNSUPPORTED", None, 6),
        "floats": (npy(path, np.zeros(3)), "ATH_FORMAT_UNSUPPORTED", None, 10),
        "matrix": (npy(path, np.zeros((3, 3), int)), "ATH_FORMAT_UNSUPPORTED", None, 10),
        "negative": (npy(path, np.array([3, -1], "<i2")), "ATH_VALUE_RANGE", 1, 130),
        "too large": (npy(path, np.array([1, 2**63], "<u8")), "ATH_VALUE_RANGE", 1, 136),
        "a page": (b"<html>not found</html>", "ATH_NOT_FORMAT", None, 0),
        "empty": (b"", "ATH_NOT_FORMAT", None, 0),
    }
    for name, (raw, code, record, at) in broken.items():
        path.write_bytes(raw)
        with pytest.raises(AthanorError) as caught:
            feed(tmp_path)
        error = caught.value
        assert (error.code, error.file, error.record, error.byte_offset) == (code, str(path), record, at), name
    np.save(path, np.array([{"no": "pickle"}]), allow_pickle=True)
    with pytest.raises(AthanorError, match="ATH_FORMAT_UNSUPPORTED"):
        feed(tmp_path)


def test_a_set_is_of_one_format_and_pairs_are_whole(tmp_path: Path) -> None:
    write_pair(tmp_path / "a", [[1, 2], [3]], "<u2")
    assert feed(tmp_path / "a.idx") == feed(tmp_path / "a.bin") == feed(tmp_path / "*") == [[1, 2], [3]]
    np.save(tmp_path / "b.npy", np.arange(3))
    with pytest.raises(AthanorError, match="ATH_FORMAT_CONFLICT") as caught:
        feed(tmp_path)
    assert caught.value.file == str(tmp_path / "b.npy")
    with pytest.raises(AthanorError, match="ATH_SAMPLE_RULE"):
        feed(tmp_path / "b.npy", sample_rule="document")
    (tmp_path / "a.bin").rename(tmp_path / "c.bin")
    for name in ("a.idx", "c.bin"):
        with pytest.raises(AthanorError, match="ATH_NOT_FOUND") as caught:
            feed(tmp_path / name)
        assert caught.value.file == str(tmp_path / name)


def test_a_shard_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(100))
    with Loader(tmp_path, agent="none", batch_size=1, max_length=4) as loader:
        assert len(loader) == 25
        np.save(tmp_path / "a.npy", np.arange(101))
        with pytest.raises(AthanorError, match="ATH_SHARD_CHANGED"):
            next(iter(loader))


def test_blocks_count_the_samples_whose_first_token_lies_in_them(tmp_path: Path) -> None:
    count = (9 << 20) // 2 + 7
    npy(tmp_path / "a.npy", (np.arange(count) % 1000).astype("<u2"))
    index = scan_all(discover(str(tmp_path)), str(tmp_path))
    (shard,) = index.shards
    raw = (tmp_path / "a.npy").read_bytes()
    assert (shard.records, shard.tokens, shard.size, shard.blocks) == (count, count, len(raw), 3)
    assert shard.crc32c == crc32c(raw)
    from athanor.reference.cut import cut_index

    samples, cuts = cut_index(index, "stream", 1000)
    starts = cuts[0].spans(np.arange(cuts[0].samples))[0]
    counts = np.bincount((128 + 2 * starts) // (4 << 20))
    assert np.diff(samples.table(0).first_record).tolist() == counts.tolist()
    assert samples.shards[0].largest_block == counts.max()
    # Samples longer than a block: blocks in which none begins.
    samples, cuts = cut_index(index, "stream", 3 << 20)
    assert np.diff(samples.table(0).first_record).tolist() == [1, 1, 0]
    assert samples.records == 2


# -- random sets


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize("last", ["pad", "carry"])
def test_every_token_once_an_epoch_at_any_world_size_and_resume_at_every_step(
    tmp_path: Path, seed: int, last: str
) -> None:
    rng = random.Random(seed)
    made = make(tmp_path, rng)
    world, batch = rng.randint(1, 8), rng.randint(1, 3)
    total = world * batch * rng.choice([1, 2])

    def loaders(ranks: int, size: int, **more: Any) -> list[Loader]:
        options = {"agent": "none", "identities": True, "last": last} | made.options | more
        sizes = {"world_size": ranks, "batch_size": size, "global_batch_size": total}
        return [Loader(tmp_path, rank=rank, **sizes, **options) for rank in range(ranks)]

    group = loaders(world, batch)
    walks = [loader.repeat() for loader in group]
    states: list[Any] = []
    steps: list[Taken] = []
    samples = len(made.rows)
    for _ in range(2 * -(-samples // (world * batch)) + 1):
        states.append(group[0].state_dict())
        steps.append(step_of(walks, last == "pad"))
    served = [row for step in steps for row in step]
    assert [row[0] for row in served] == list(range(len(served)))
    expected = sorted((key, record, tuple(row)) for (key, record, _), row in made.rows.items())
    for epoch in range(2):
        part = served[epoch * samples : (epoch + 1) * samples]
        assert sorted(row[1:] for row in part) == expected

    # Each step again from its state, and at another world size where an optimizer batch has ended.
    for number, state in enumerate(states):
        other, size, first = world, batch, int(state["position"])
        if last == "carry" and first % total == 0:
            other = rng.choice([ranks for ranks in range(1, 9) if total % ranks == 0])
            size = total // other
        again = step_of([loader.repeat() for loader in loaders(other, size, state=state)], last == "pad")
        common = min(len(again), len(served) - first)
        assert again[:common] == served[first : first + common], number
        assert common >= len(steps[number])
