"""Shards that change under a job, on a plain file system (case R4): while they are open, and between two epochs.

Whatever happens: the old rows, or an error that names the file. Never rows of the new file at offsets of the old index,
never fewer rows in silence; put back, the same iterator goes on exactly.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import athanor
import pytest
from athanor.numpy import Loader
from conftest import run_dir  # noqa: F401  (a fixture)
from node_rig import BATCH, RECORDS, SAMPLES, SHARDS, data, index, write_shards  # noqa: F401  (a fixture)

STEPS = SAMPLES // BATCH
ORDERS: dict[str, dict[str, Any]] = {
    "held": {},
    "window": {"shuffle_memory": 1, "lanes": 2, "window": 20},
    "global": {"shuffle": "global", "shuffle_memory": 1},
}


class Change(NamedTuple):
    """What happens to a shard; what an error about it says, if one comes."""

    code: str
    text: str
    make: Callable[[Path, Path], None]


def replace(shard: Path, other: Path) -> None:
    """Another file of the same name and size, as a new copy of the data set brings it."""
    new = shard.with_suffix(".new.tmp")
    shutil.copyfile(other, new)
    new.rename(shard)


def truncate(shard: Path, other: Path) -> None:
    os.truncate(shard, shard.stat().st_size // 2)


def delete(shard: Path, other: Path) -> None:
    shard.unlink()


def rewrite(shard: Path, other: Path) -> None:
    """In place: the open descriptor sees it too."""
    shard.write_bytes(other.read_bytes())


CHANGES = {
    "replaced": Change(
        "ATH_SHARD_CHANGED", r"changed since it was indexed: found \d+ bytes of \S+, expected \d+ bytes of \S+", replace
    ),
    "truncated": Change("ATH_SHARD_CHANGED|ATH_SHARD_TRUNCATED", r"\d+ bytes", truncate),
    "deleted": Change("ATH_NOT_FOUND", "no such file", delete),
    "rewritten": Change("ATH_SHARD_CHANGED|ATH_SHARD_TRUNCATED", r"found \d+ bytes", rewrite),
}


@pytest.fixture
def sets(data: Path, run_dir: Path) -> Iterator[tuple[Path, Path]]:  # noqa: F811
    """The set under test and another one of the same sizes, whose ids go on where the first one's end."""
    other = data.parent / "other"
    if not other.exists():
        write_shards(other, shift=SAMPLES)
    mine = data.parent / "mine"
    shutil.copytree(data, mine, copy_function=shutil.copy2)
    assert [p.stat().st_size for p in sorted(mine.glob("s*"))] == [p.stat().st_size for p in sorted(other.glob("s*"))]
    yield mine, other
    shutil.rmtree(mine)


def ids(batch: dict[str, Any]) -> list[int]:
    found = [int(i) - 1_000_000 for i in batch["id"]]
    assert len(found) == BATCH
    return found


def keep(folder: Path) -> dict[Path, tuple[bytes, int]]:
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.glob("s*.tfrecord")}


def put_back(kept: dict[Path, tuple[bytes, int]]) -> None:
    for path, (content, mtime) in kept.items():
        path.write_bytes(content)
        os.utime(path, ns=(mtime, mtime))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("change", CHANGES)
def test_r4_a_shard_that_changes(sets: tuple[Path, Path], order: str, change: str) -> None:
    mine, other = sets
    case = CHANGES[change]
    kept = keep(mine)
    outcomes = set()
    with Loader(mine, batch_size=BATCH, columns=["id"], seed=3, timeout=20, **ORDERS[order]) as whole:
        want = [[ids(batch) for batch in whole] for _ in range(2)]
    # After the first step, in the middle, near the end; and between two epochs.
    for at, shard in ((1, 0), (1, SHARDS - 1), (STEPS // 2, 1), (STEPS - 2, 2), (STEPS, 0), (STEPS, 3)):
        with Loader(mine, batch_size=BATCH, columns=["id"], seed=3, timeout=20, **ORDERS[order]) as loader:
            steps = loader.repeat()
            seen = [ids(next(steps)) for _ in range(at)]
            name = mine / f"s{shard}.tfrecord"
            case.make(name, other / name.name)
            try:
                while len(seen) < 2 * STEPS:
                    seen.append(ids(next(steps)))
                outcomes.add("old rows")
            except athanor.AthanorError as error:
                outcomes.add("error")
                assert re.fullmatch(case.code, error.code) and error.file == str(name), error
                assert re.search(case.text, str(error)), error
                put_back(kept)
                while len(seen) < 2 * STEPS:
                    seen.append(ids(next(steps)))
            assert seen == want[0] + want[1]
            put_back(kept)
    # What is held is not read again, and an open descriptor keeps a file that was replaced or deleted.
    assert order == "held" or change in ("replaced", "deleted") or "error" in outcomes


def test_a_set_that_changes_while_no_loader_is_open(sets: tuple[Path, Path]) -> None:
    """All loaders closed between two epochs; the agent that stays must not go by what it remembers."""
    mine, other = sets
    with Loader(mine, batch_size=BATCH, columns=["id"], seed=3, timeout=20) as loader:
        state = [loader.state_dict() for _ in loader][-1]
    replace(mine / "s1.tfrecord", other / "s1.tfrecord")
    for code in ("ATH_SHARD_CHANGED", "ATH_STATE_MISMATCH"):
        with (
            Loader(mine, batch_size=BATCH, columns=["id"], seed=3, timeout=20, state=state) as loader,
            pytest.raises(athanor.AthanorError) as caught,
        ):
            list(loader)
        assert caught.value.code == code
        index(mine)  # from here on it is another data set, which the state is not of
    with Loader(mine, batch_size=BATCH, columns=["id"], seed=3, timeout=20) as loader:
        seen = sorted(i for batch in loader for i in ids(batch))
    new = range(SAMPLES + RECORDS, SAMPLES + 2 * RECORDS)
    assert seen == sorted([*range(RECORDS), *range(2 * RECORDS, SAMPLES), *new])
