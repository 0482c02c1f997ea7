"""Training over a real distributed file system whose servers get into trouble: MooseFS of this test alone
(moosefs_rig.py), torch and a real agent in its namespace.

Whatever happens to a chunk server or to the metadata server, no sample is lost or repeated, training goes on when the
server does, and what it waited for is named. That the bytes come from the servers, in each epoch, is counted there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from athanor.torch import Loader
from conftest import ROOT, agents_in, end_agents, run_dir  # noqa: F401  (a fixture)
from conftest import athanor as command
from moosefs_rig import MooseFs, missing
from moosefs_trainer import BATCH, OPTIONS, batches, tokens_of

SHARDS, RECORDS = 16, 180
SAMPLES = SHARDS * RECORDS
STEPS = SAMPLES // BATCH
#: Shards of 6 MB: the mount keeps what was read last of an open file, and shards of some 2 MB whole.
PAD = "x" * 33_000

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"skipped: no MooseFS ({missing()})")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """96 MB that are read in each epoch, and an index."""
    folder = tmp_path_factory.mktemp("made") / "data"
    folder.mkdir()
    for number in range(SHARDS):
        ids = range(number * RECORDS, (number + 1) * RECORDS)
        lines = (json.dumps({"id": i, "input_ids": tokens_of(i), "pad": PAD}) for i in ids)
        (folder / f"train-{number:02}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    done = command("index", folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def fs(made: Path) -> Iterator[MooseFs]:
    base = Path(tempfile.mkdtemp(prefix="ath-mfs-", dir="/tmp"))
    try:
        with MooseFs(base) as fs:
            data = fs.mount / "data"
            fs.run("mkdir", data)
            fs.run("sh", "-c", 'cp "$0"/*.jsonl "$1"', made, data)
            # Of its own: times are whole seconds here.
            fs.run("node", ROOT / "bin/athanor.mjs", "index", data)
            yield fs
    finally:
        shutil.rmtree(base, ignore_errors=True)


class Trainer:
    """Of moosefs_trainer.py, inside."""

    def __init__(self, fs: MooseFs, run_dir: Path, pace: float = 0.02) -> None:  # noqa: F811
        self.run_dir = run_dir
        self.folder = Path(tempfile.mkdtemp(dir=run_dir))
        sources = [ROOT / "python/src", ROOT / "test/fault"]
        self.errors = self.folder / "stderr"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [*fs.inside, sys.executable, str(ROOT / "test/fault/moosefs_trainer.py"), str(fs.mount / "data"),
                 str(self.folder), str(pace)],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sources)), "OMP_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL, stdout=errors, stderr=errors,
            )  # fmt: skip

    def steps(self) -> list[list[int]]:
        """Ids of each step so far."""
        path = self.folder / "steps.jsonl"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def storage(self) -> dict[str, Any]:
        path = self.folder / "stats.json"
        return dict(json.loads(path.read_text())["agent"]["storage"]) if path.exists() else {"targets": []}

    def servers(self) -> set[str]:
        """Targets that were read from and are known one by one."""
        return {entry["target"] for entry in self.storage()["targets"] if entry["target"].startswith("mfs-")}

    def log(self) -> str:
        path = self.run_dir / "agent.log"
        return path.read_text() if path.exists() else ""

    def until(self, holds: Callable[[], bool], what: str, limit: float = 90) -> None:
        deadline = time.monotonic() + limit
        while not holds():
            assert self.process.poll() is None, f"the trainer ended: {self.errors.read_text()}"
            assert time.monotonic() < deadline, f"{what}, not within {limit} s: {self.errors.read_text()}{self.log()}"
            time.sleep(0.1)

    def go_on(self, steps: int = STEPS) -> None:
        """So many steps more."""
        until = len(self.steps()) + steps
        self.until(lambda: len(self.steps()) >= until, f"{steps} more steps")

    def end(self) -> list[list[int]]:
        """Ids of all steps."""
        (self.folder / "stop").touch()
        assert self.process.wait(timeout=90) == 0, self.errors.read_text()
        return self.steps()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        end_agents(self.run_dir)


@pytest.fixture
def trainer(fs: MooseFs, run_dir: Path) -> Iterator[Trainer]:  # noqa: F811
    trainer = Trainer(fs, run_dir)
    yield trainer
    trainer.kill()


def bytes_read(pid: int) -> int:
    """By read calls of a process, sockets and chunk files alike."""
    return int(re.search(r"^rchar: (\d+)", Path(f"/proc/{pid}/io").read_text(), re.M)[1])  # type: ignore[index]


def served(fs: MooseFs) -> list[int]:
    """Bytes that each chunk server has read in its life."""
    return [bytes_read(server.pid) for server in fs.servers]


def the_steps(made: Path, run_dir: Path, count: int) -> list[list[int]]:  # noqa: F811
    """What the first steps are, from a local disk."""
    end_agents(run_dir)
    with Loader(made, batch_size=BATCH, columns=["id", "input_ids"], timeout=90, **OPTIONS) as loader:
        return [ids for ids, _ in islice(batches(loader), count)]


def test_training_goes_on_exactly_while_servers_stop_die_and_restart(made: Path, fs: MooseFs, trainer: Trainer) -> None:
    trainer.until(lambda: len(trainer.servers()) == len(fs.servers), "reads by chunk server")
    assert trainer.servers() == {f"mfs-{address}" for address in fs.addresses}
    size = sum(path.stat().st_size for path in made.glob("*.jsonl"))
    before, steps = served(fs), len(trainer.steps())
    trainer.go_on(2 * STEPS)
    epochs = (len(trainer.steps()) - steps) / STEPS
    # Windows reach ahead and were filled before, and the mount keeps the last MiB or so of an open file.
    assert sum(served(fs)) - sum(before) > 0.8 * (epochs - 1) * size, "the data does not come from the chunk servers"

    # A chunk server that does nothing for 20 s.
    before = served(fs)
    fs.servers[2].pause()
    time.sleep(20)
    assert served(fs)[2] == before[2]
    fs.servers[2].go_on()
    trainer.go_on()
    assert served(fs)[2] > before[2]
    slow = f"mfs-{fs.addresses[2]}"
    assert re.search(rf"hangs since \d\d:\d\d:\d\d \(target {slow}\)", trainer.log()), trainer.log()
    assert slow in trainer.errors.read_text(), "the trainer is not told what it waits for"
    entry = next(entry for entry in trainer.storage()["targets"] if entry["target"] == slow)
    assert entry["slowestMs"] > 10_000

    # One that is killed, and is back after ten seconds.
    fs.servers[1].kill()
    time.sleep(10)
    fs.servers[1].start()
    fresh = served(fs)[1]
    trainer.go_on()
    assert served(fs)[1] > fresh

    # The metadata server, killed as well, and back after five.
    before = served(fs)
    fs.master.kill()
    time.sleep(5)
    fs.master.start()
    trainer.go_on()
    assert all(now > then for now, then in zip(served(fs), before))

    done = trainer.end()
    assert trainer.storage()["troubles"] == []
    assert done == the_steps(made, trainer.run_dir, len(done))
    for epoch in range(len(done) // STEPS):
        ids = [i for step in done[epoch * STEPS : (epoch + 1) * STEPS] for i in step]
        assert sorted(ids) == list(range(SAMPLES)), f"epoch {epoch}"


def test_an_agent_whose_reads_hang_can_be_stopped(made: Path, fs: MooseFs, trainer: Trainer) -> None:
    trainer.until(lambda: len(trainer.servers()) == len(fs.servers), "reads by chunk server")
    fs.servers[3].pause()
    try:
        done = len(trainer.steps())
        trainer.until(
            lambda: any("mfs-" in line for line in trainer.log().splitlines() if "hangs" in line), "a read that hangs"
        )
        assert len(trainer.steps()) >= done
        (agent,) = agents_in(trainer.run_dir)
        trainer.process.send_signal(signal.SIGTERM)
        trainer.process.wait(timeout=20)
        # It leaves once its last session is gone; what is left of it is one call that the kernel waits for.
        deadline = time.monotonic() + 30
        while (trainer.run_dir / "agent.sock").exists() or not is_dead(agent):
            assert time.monotonic() < deadline, trainer.log()
            time.sleep(0.1)
    finally:
        fs.servers[3].go_on()
    deadline = time.monotonic() + 60
    while Path(f"/proc/{agent}").exists():
        assert time.monotonic() < deadline, "the agent is left"
        time.sleep(0.1)


def is_dead(pid: int) -> bool:
    """Gone, or killed and waiting for a call of a thread to return."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True
