"""A verified copy (`athanor layout apply --copy-to`) onto a file system that fails."""

from __future__ import annotations

import filecmp
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import run_dir  # noqa: F401  (a fixture)
from faultfs import FaultFs, missing
from mounted import mounted
from test_storage_faults import command, run

NAMES = ("a.bin", "b.bin", "c.bin")
JOURNAL = ".athanor-copy.jsonl"

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"skipped: no FUSE file system ({missing()})")


@pytest.fixture
def fs(run_dir: Path) -> Iterator[FaultFs]:  # noqa: F811
    (run_dir / "real").mkdir()
    (run_dir / "data").mkdir()
    for name in NAMES:
        (run_dir / "data" / name).write_bytes(os.urandom(3_000_001))
    with mounted(run_dir) as fs:
        yield fs


def words(fs: FaultFs) -> list[str]:
    return ["layout", "apply", str(fs.mount.parent / "data"), "--copy-to", str(fs.mount / "new"), "--apply"]


def shown(fs: FaultFs) -> set[str]:
    return {path.name for path in (fs.mount.parent / "real/new").iterdir()}


def assert_whole(fs: FaultFs) -> None:
    assert shown(fs) == set(NAMES)
    for name in NAMES:
        data, copy = fs.mount.parent / "data" / name, fs.mount.parent / "real/new" / name
        assert filecmp.cmp(data, copy, shallow=False)
        assert data.stat().st_mtime_ns == copy.stat().st_mtime_ns


def test_a_full_file_system_is_named_and_the_copy_goes_on_when_it_has_room(fs: FaultFs) -> None:
    # From the first byte on (the journal's), then in the middle of a file.
    for start in (0, 2_000_000):
        fs.fault("write", start=start, fails="ENOSPC")
        code, _, error = run(*words(fs))
        assert (code, error["code"]) == (3, "ATH_COPY_WRITE") and "ENOSPC" in error["message"], error
        assert "free space" in error["remedy"] and shown(fs) == {JOURNAL}
        fs.clear()
    # Node has no name for this one.
    fs.fault("write", start=2_000_000, fails="EDQUOT")
    code, _, error = run(*words(fs))
    assert (code, error["code"]) == (3, "ATH_COPY_WRITE") and "EDQUOT" in error["message"], error
    assert "quota" in error["remedy"], error
    fs.clear()
    code, _, error = run(*words(fs))
    assert code == 0, error
    assert_whole(fs)


def test_a_source_that_cannot_be_read_is_named(fs: FaultFs) -> None:
    name = NAMES[1]
    (fs.mount.parent / "real/data").mkdir()
    for each in NAMES:
        (fs.mount.parent / "real/data" / each).write_bytes(b"x" * 2_000_000)
    fs.fault("read", path=f"data/{name}", start=1_500_000, fails="EIO")
    target = fs.mount.parent / "new"
    line = ["layout", "apply", str(fs.mount / "data"), "--copy-to", str(target), "--apply"]
    code, _, error = run(*line)
    assert (code, error["code"], error["file"]) == (3, "ATH_STORAGE_IO", str(fs.mount / "data" / name)), error
    assert {path.name for path in target.iterdir()} == {NAMES[0], JOURNAL}


def test_a_call_that_hangs_is_told_and_ctrl_c_ends_the_copy(fs: FaultFs) -> None:
    fs.fault("read", hold=True)
    process = subprocess.Popen(command(*words(fs)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    fs.wait_for_held(limit=30)  # the copy is read back
    assert process.stderr is not None
    assert process.stderr.readline().startswith("waiting for storage: copy of ")
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == -signal.SIGINT
    assert not any(name in shown(fs) for name in NAMES)
    fs.clear()
    process.communicate(timeout=30)
    code, _, error = run(*words(fs))
    assert code == 0, error
    assert_whole(fs)
