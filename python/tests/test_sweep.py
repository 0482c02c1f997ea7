from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from athanor import _rundir, _spawn, _sweep

Monkey = pytest.MonkeyPatch
ROUTINE = "2026-01-02T03:04:05.678Z agent 0.1.0 (pid 7) of job j is ready\n"


@pytest.fixture
def user(monkeypatch: Monkey) -> Iterator[Path]:
    """The user's folder of run directories, in a place of its own."""
    base = Path(tempfile.mkdtemp(prefix="ath-", dir="/tmp"))
    monkeypatch.setattr(_rundir, "BASES", (str(base),))
    monkeypatch.setattr(_sweep, "_QUIET_S", 600.0)  # ten seconds are less than a busy machine may stand still
    folder = base / f"athanor-{os.getuid()}"
    folder.mkdir(mode=0o700)
    yield folder
    shutil.rmtree(base)


def job(user: Path, name: str, age: float = 3600, log: str = ROUTINE, lock: bool = True) -> Path:
    """What an agent of `job` leaves that is killed."""
    folder = user / name
    folder.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(folder / "agent.sock"))
    if lock:
        (folder / "spawn.lock").touch(0o600)
    (folder / "agent.log").write_text(log)
    (folder / "seg-7-0").touch()  # of a client that is gone
    os.utime(folder, (time.time() - age,) * 2)
    return folder


def test_only_what_is_provably_dead_is_swept(user: Path) -> None:
    dead, mine, fresh = job(user, "dead"), job(user, "mine"), job(user, "fresh", age=0)
    external = job(user, "external", lock=False)
    starting = job(user, "starting")
    held = os.open(starting / "spawn.lock", os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    living = job(user, "living")
    (living / "agent.sock").unlink()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(living / "agent.sock"))
    listener.listen(0)
    queue = []
    for _ in range(2):  # an agent that is stopped: its queue is full
        queue.append(socket.socket(socket.AF_UNIX))
        queue[-1].setblocking(False)
        queue[-1].connect_ex(str(living / "agent.sock"))
    os.utime(living, (time.time() - 3600,) * 2)
    before = {path: sorted(path.iterdir()) for path in (mine, fresh, external, starting, living)}
    assert _sweep.sweep(str(mine)) == [str(dead)]
    assert sorted(user.iterdir()) == sorted(before)
    assert {path: sorted(path.iterdir()) for path in before} == before
    for each in (*queue, listener):
        each.close()
    os.close(held)
    os.utime(living, (time.time() - 3600,) * 2)
    assert sorted(_sweep.sweep(str(mine))) == [str(living), str(starting)]


def test_a_log_that_tells_something_stays(user: Path) -> None:
    for name, log in (
        ("hang", ROUTINE + "2026-01-02T03:04:06.678Z WARNING read of /d/a at byte 0 hangs (target -)\n"),
        ("crash", ROUTINE + "FATAL ERROR: invalid array length\n"),
    ):
        job(user, name, log=log)
    assert _sweep.sweep("") == []
    assert sorted(str(path.relative_to(user)) for path in user.rglob("*")) == [
        "crash",
        "crash/agent.log",
        "hang",
        "hang/agent.log",
    ]


def test_two_sweep_and_a_third_starts_an_agent_there(user: Path, fake: Path) -> None:
    """Whoever comes first: at the end there is one agent, and it is reached."""
    for turn in range(10):
        folder = job(user, f"j{turn}")
        program = (
            "import sys; from athanor import _rundir, _sweep; _rundir.BASES = (sys.argv[1],); "
            "[_sweep.sweep('') for _ in range(200)]"
        )
        sweepers = [
            subprocess.Popen(
                [sys.executable, "-c", program, str(user.parent)],
                env={**os.environ, "PYTHONPATH": str(Path(_sweep.__file__).parents[1])},
            )
            for _ in range(2)
        ]
        time.sleep(0.02 * turn)
        peer = _spawn.connect(str(folder), "j", "auto", 20)
        assert [process.wait(20) for process in sweepers] == [0, 0]
        assert _spawn.try_connect(str(folder / "agent.sock")) is not None
        os.kill(_spawn.peer_pid(peer), signal.SIGKILL)
        peer.close()


def test_the_start_of_an_agent_sweeps(user: Path, fake: Path, monkeypatch: Monkey) -> None:
    dead = job(user, "dead")
    monkeypatch.delenv("ATHANOR_RUN_DIR")
    path = _rundir.run_dir("next")
    peer = _spawn.connect(path, "next", "auto", 20)
    assert not dead.exists() and Path(path, "agent.sock").exists()
    os.kill(_spawn.peer_pid(peer), signal.SIGKILL)
    peer.close()
