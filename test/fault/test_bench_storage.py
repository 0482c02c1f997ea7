"""`athanor bench storage` on a mount in trouble: a slow target is named, and what does not return keeps nobody."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, run_dir  # noqa: F401  (a fixture)
from faultfs import FaultFs, missing
from lustre_scene import Scene
from mounted import mounted

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"skipped: no FUSE file system ({missing()})")

#: A shard on each of four OSTs; other files lie on the first.
PLACES = {**{f"shard-{ost}": ost for ost in range(4)}, "shared": 0, "checkpoint-0": 0}


@pytest.fixture
def fs(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultFs]:  # noqa: F811
    (run_dir / "real").mkdir()
    with mounted(run_dir) as fs:
        for name, value in Scene(run_dir, fs.mount, PLACES).environment().items():
            monkeypatch.setenv(name, value)
        yield fs


def bench(fs: FaultFs, *flags: str) -> tuple[int, dict[str, Any], float]:
    command = ["node", str(ROOT / "dist/src/cli/main.js"), "bench", "storage", str(fs.mount), "--json"]
    began = time.monotonic()
    done = subprocess.run(
        [*command, "--size", "32MiB", "--processes", "1", *flags], capture_output=True, text=True, timeout=300
    )
    told = json.loads(done.stdout if done.returncode == 0 else done.stderr)
    return done.returncode, told if done.returncode == 0 else told["error"], time.monotonic() - began


def left(fs: FaultFs) -> list[Path]:
    return list((fs.mount.parent / "real").iterdir())


def test_a_target_that_is_much_slower_is_named(fs: FaultFs) -> None:
    # Reads come in pieces of 1 MiB: 5 MiB/s, an idle machine gives hundreds.
    fs.fault("read", name="shard-3", delay=0.2)
    code, report, _ = bench(fs)
    assert code == 0, report
    assert [target["name"] for target in report["targets"]] == [f"fs-OST000{ost}" for ost in range(4)]
    assert all(target["cold"] for target in report["targets"])
    named = [limit["text"] for limit in report["limits"] if limit["about"] == "targets"]
    assert len(named) == 1 and named[0].startswith("fs-OST0003 gives "), report["limits"]
    (shards,) = [limit["text"] for limit in report["limits"] if limit["about"] == "shards"]
    assert "files on fs-OST0003 hold the others up" in shards
    assert report["targets"][3]["slower"] > 3
    assert left(fs) == []


def test_reads_that_hang_end_it_with_file_and_target(fs: FaultFs) -> None:
    fs.fault("read", name="shard-2", hold=True)
    code, error, seconds = bench(fs, "--timeout", "2s")
    assert (code, error["code"]) == (3, "ATH_BENCH_SILENT"), error
    assert Path(error["file"]).name == "shard-2"
    assert "read has not answered" in error["message"] and "fs-OST0002" in error["message"], error
    assert seconds < 100
    # What still hangs there may keep the folder; it goes when the mount answers again.
    fs.clear()
    deadline = time.monotonic() + 60
    while left(fs):
        assert time.monotonic() < deadline, left(fs)
        time.sleep(0.1)


def test_a_mount_that_does_not_answer_ends_it(fs: FaultFs) -> None:
    fs.fault("statfs", hold=True)
    code, error, seconds = bench(fs, "--timeout", "2s")
    assert (code, error["code"]) == (3, "ATH_BENCH_SILENT"), error
    assert Path(error["file"]).name.startswith(".athanor-bench-") and seconds < 100, error
    fs.clear()


def test_no_room_in_the_middle_is_told_and_nothing_is_left(fs: FaultFs) -> None:
    fs.fault("write", name="checkpoint-0", fails="ENOSPC")
    code, error, _ = bench(fs)
    assert (code, error["code"]) == (3, "ATH_BENCH_ROOM"), error
    assert Path(error["file"]).name == "checkpoint-0" and "ENOSPC" in error["message"]
    assert left(fs) == []
