"""Workers of a DataLoader that are killed, ended or stopped: an error in time, or a pause. Others of the node go on,
nothing stays, and a start from the last state is exact."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from athanor.numpy import Loader
from conftest import ROOT, agents_in
from tfrecord_writer import write

pytest.importorskip("torch.utils.data")
SAMPLES, BATCH = 240, 4


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("workers")
    for shard in range(4):
        write(folder / f"{shard}.tfrecord", ({"id": shard * 60 + i} for i in range(60)))
    return str(folder)


def outcome(source: str, kind: str) -> dict[str, Any]:
    words = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("worker_fault.py")), source, kind]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python/src")}
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def plain(source: str) -> tuple[list[list[int]], list[Any]]:
    """An epoch, and the state behind each of its steps."""
    with Loader(source, batch_size=BATCH, columns=["id"], seed=2) as loader:
        steps, states = [], [loader.state_dict()]
        for batch in loader:
            steps.append([int(i) for i in batch["id"]])
            states.append(loader.state_dict())
        return steps, states


def await_no_agent(run_dir: Path) -> None:
    end = time.monotonic() + 30
    while agents_in(run_dir):
        assert time.monotonic() < end, "the agent stays: a session is left"
        time.sleep(0.05)
    assert not list(run_dir.glob("seg-*")) and not (run_dir / "agent.sock").exists()


@pytest.mark.parametrize("kind, by", [("kill", signal.SIGKILL), ("term", signal.SIGTERM)])
def test_a_worker_that_ends_is_an_error_and_the_state_goes_on(
    source: str, run_dir: Path, kind: str, by: signal.Signals
) -> None:
    told = outcome(source, kind)
    # torch's words: the worker by its pid, or its hung-up socket or pipe where a batch of it was on the way.
    assert any(word in told["error"] for word in (str(told["worker"]), "Connection", "EOFError")), told
    assert told["seconds"] < 50 and told["exit"] == -by  # torch looks each 5 s; 137 and 143 in a shell
    steps, states = plain(source)
    count = len(told["seen"])
    assert count < len(steps) and told["seen"] == steps[:count]  # nothing half, nothing out of turn
    with Loader(source, batch_size=BATCH, columns=["id"], seed=2, state=states[count]) as loader:
        assert [[int(i) for i in batch["id"]] for batch in loader] == steps[count:]
    await_no_agent(run_dir)


def test_a_worker_that_is_stopped_for_a_while_is_a_pause(source: str, run_dir: Path) -> None:
    told = outcome(source, "pause")
    assert told["error"] is None and told["exit"] == 0 and told["seen"] == plain(source)[0]
    await_no_agent(run_dir)


def test_a_worker_that_is_stopped_for_ever_holds_up_nobody_else(source: str, run_dir: Path) -> None:
    told = outcome(source, "stop")
    steps = plain(source)[0]
    assert told["seen"] == steps[:5] and told["other"] == steps
    await_no_agent(run_dir)
