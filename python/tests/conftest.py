from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_ENVIRONMENT = ("ATHANOR_", "SLURM_", "OMPI_", "PMI_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC_")


def agents_in(run_dir: Path) -> list[int]:
    """Pids of the agents of this run directory: session leaders with it in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                mine = b"ATHANOR_RUN_DIR=" + os.fsencode(run_dir) in (entry / "environ").read_bytes().split(b"\0")
                if mine and os.getsid(int(entry.name)) == int(entry.name):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def end_agents(run_dir: Path) -> None:
    for pid in agents_in(run_dir):
        os.kill(pid, signal.SIGKILL)


def athanor(*args: object) -> subprocess.CompletedProcess[str]:
    """The command as built; fails nothing itself."""
    command = ["node", str(ROOT / "dist/src/cli/main.js"), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture
def run_dir(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A run directory of this test alone, in an environment without launchers; its agents end with it."""
    for name in list(os.environ):
        if name.startswith(_ENVIRONMENT):
            monkeypatch.delenv(name)
    path = Path(tempfile.mkdtemp(prefix="ath-", dir="/tmp"))  # pytest's own paths are too long for a socket
    monkeypatch.setenv("ATHANOR_RUN_DIR", str(path))
    monkeypatch.setenv("ATHANOR_AGENT_GRACE", "1s")
    yield path
    end_agents(path)
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def fake(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Loaders of this test start the fake agent."""
    node = run_dir / "node"
    script = Path(__file__).with_name("fake_agent.py")
    node.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo v20.19.0 && exit 0\nexec "{sys.executable}" "{script}" "$@"\n'
    )
    node.chmod(0o755)
    agent = run_dir / "agent.js"
    agent.write_text("")
    monkeypatch.setenv("ATHANOR_NODE", str(node))
    monkeypatch.setenv("ATHANOR_AGENT_JS", str(agent))
    return run_dir
