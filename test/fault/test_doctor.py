"""`athanor doctor` on a mount that answers nothing: it says so and ends, though what it started cannot be killed."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest
from conftest import ROOT
from faultfs import FaultFs, missing

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"skipped: no FUSE file system ({missing()})")


def doctor(path: Path) -> tuple[int, dict[str, list[dict[str, str]]], float]:
    command = ["node", str(ROOT / "bin" / "athanor.mjs"), "doctor", str(path), "--json", "--timeout", "2s"]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    return done.returncode, json.loads(done.stdout), time.monotonic() - began


def test_a_mount_that_does_not_answer_is_named_and_keeps_nobody(tmp_path: Path) -> None:
    (tmp_path / "real" / "data").mkdir(parents=True)
    (tmp_path / "mount").mkdir()
    with FaultFs(tmp_path / "real", tmp_path / "mount") as fs:
        _, well, _ = doctor(fs.mount / "data")
        assert "mount-silent" not in [finding["id"] for finding in well["findings"]]
        fs.fault("statfs", hold=True)
        code, told, seconds = doctor(fs.mount / "data")
        assert code == 1
        assert [finding["what"] for finding in told["findings"] if finding["id"] == "mount-silent"] == [
            f"{fs.mount} does not answer"
        ]
        assert seconds < 60
        fs.clear()
        # The path itself does not answer either: a lost metadata server.
        fs.fault("stat", hold=True)
        fs.fault("statfs", hold=True)
        code, told, seconds = doctor(fs.mount / "data")
        assert fs.held() > 0
        assert (code, "mount-silent" in [finding["id"] for finding in told["findings"]]) == (1, True)
        assert seconds < 60
