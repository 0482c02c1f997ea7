"""What `athanor plan` says an epoch costs the file system, beside the calls of a real agent: faultfs.py counts them."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from athanor.numpy import Loader
from conftest import athanor as command
from conftest import run_dir  # noqa: F401  (a fixture)
from faultfs import FaultFs, missing
from mounted import mounted
from tfrecord_writer import write

SHARDS, RECORDS, BATCH, LANES = 80, 20, 10, 4
STEPS = SHARDS * RECORDS // BATCH

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"skipped: no FUSE file system ({missing()})")


@pytest.fixture
def fs(run_dir: Path) -> Iterator[FaultFs]:  # noqa: F811
    """More shards than a loader kept open once."""
    data = run_dir / "real/data"
    data.mkdir(parents=True)
    for number in range(SHARDS):
        first = number * RECORDS
        rows = ({"id": i, "input_ids": [i] * 50} for i in range(first, first + RECORDS))
        write(data / f"train-{number:03}.tfrecord", rows)
    (run_dir / "real/eval").mkdir()
    write(run_dir / "real/eval/one.tfrecord", ({"id": i, "input_ids": [i] * 50} for i in range(2 * BATCH)))
    for folder in (data, run_dir / "real/eval"):
        done = command("index", folder)
        assert done.returncode == 0, done.stderr
    with mounted(run_dir) as fs:
        yield fs
    shutil.rmtree(data)


def counted(fs: FaultFs) -> Counter[str]:
    """Calls since the last time, by what they are of."""
    found: Counter[str] = Counter()
    for call, times in fs.calls().items():
        op, _, path = call.partition(" ")
        what = "table" if "/blocks/" in path else "shard" if path.endswith(".tfrecord") else "index"
        found[f"{op} {what}"] += times
    fs.clear()
    return found


def test_an_agent_opens_what_the_plan_says(fs: FaultFs) -> None:
    options = ("--batch", BATCH, "--lanes", LANES, "--window", 50, "--shuffle-memory", "10000", "--columns", "id")
    planned = command("plan", fs.mount / "data", *options, "--json")
    assert planned.returncode == 0, planned.stderr
    bill: dict[str, Any] = json.loads(planned.stdout)["bill"]
    counted(fs)
    with Loader(
        fs.mount / "data", batch_size=BATCH, columns=["id"], seed=3, shuffle_memory=10_000, lanes=LANES, window=50
    ) as loader:
        steps = loader.repeat()
        # Lanes read ahead: the first epoch's files are all open when the second one has begun.
        for _ in range(STEPS + STEPS // 2):
            next(steps)
        first = counted(fs)
        assert first["open shard"] == bill["firstEpoch"]["opens"] == SHARDS
        assert first["open table"] == bill["firstEpoch"]["tables"] == SHARDS
        assert first["open index"] <= 2 and first["list index"] <= 2
        before = loader.stats()["agent"]["stages"]["reads"]
        for _ in range(4 * STEPS):
            next(steps)
        later = counted(fs)
        assert later["open shard"] == later["open table"] == bill["laterEpochs"]["opens"] == 0
        assert later["close shard"] == 0
        reads = loader.stats()["agent"]["stages"]["reads"] - before
        assert abs(reads / 4 - bill["laterEpochs"]["reads"]) <= LANES + 1
        # An evaluation of other data leaves them open; one of the same data looks at them again.
        with Loader(fs.mount / "eval", batch_size=BATCH, columns=["id"]) as other:
            next(iter(other))
        for _ in range(2 * STEPS):
            next(steps)
        assert counted(fs)["open shard"] == 1


def test_a_node_keeps_to_its_share_and_says_what_waits(
    fs: FaultFs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One rank a node of 40 nodes: after the first 256 opens one a second, so that a start waits for nothing."""
    monkeypatch.setattr("athanor._connection._WARN_AT", (0.5, 60.0))
    monkeypatch.setenv("ATHANOR_POLITE", "opens=40,stats=off")
    share: dict[str, Any] = {"batch_size": BATCH, "columns": ["id"], "world_size": 40, "rank": 0}
    with Loader(fs.mount / "data", seed=3, **share) as loader:
        next(loader.repeat())
        polite = loader.stats()["agent"]["storage"]["polite"]
        assert polite["nodes"] == 40 and "stats" not in polite
        assert polite["opens"] == {"perSecond": 1, "waiting": 0, "waited": 0, "waitedSeconds": 0}
        opened = sum(times for call, times in fs.calls().items() if call.startswith("open "))
        assert 100 < opened < 256
        # Evaluations look at their data anew each time: two opens, until what is there at once is used up.
        for _ in range(100):
            with Loader(fs.mount / "eval", batch_size=BATCH, columns=["id"]) as other:
                next(iter(other))
            polite = loader.stats()["agent"]["storage"]["polite"]
            if polite["opens"]["waitedSeconds"] > 1:
                break
        assert polite["nodes"] == 40 and polite["opens"]["waitedSeconds"] > 1
    assert "opens wait for this node's share, 1 a second of 40 for 40 nodes (ATHANOR_POLITE" in caplog.text
