"""What the tests of one node need: data that anybody may read, ranks as processes (in namespaces, of other users), and
a look at what is left."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chaos_processes import command, of_job, run_dirs, text_of
from conftest import _ENVIRONMENT, ROOT
from tfrecord_writer import write

SHARDS, RECORDS, BATCH = 4, 60, 12
SAMPLES = SHARDS * RECORDS
OTHER_USER = 54321
HERE = Path(__file__).resolve().parent


def unshare(*flags: str) -> list[str]:
    """The beginning of a command in namespaces of its own; skips the test where there can be none."""
    words = ["unshare", *flags, "--"]
    try:
        done = subprocess.run([*words, "true"], capture_output=True, text=True)
        why = done.stderr.strip()
        failed = done.returncode != 0
    except OSError as error:
        why, failed = str(error), True
    if failed:
        pytest.skip(f"skipped: no namespaces by `unshare {' '.join(flags)}` ({why})")
    return words


def other_user() -> int:
    if os.getuid() != 0:
        pytest.skip("skipped: only root can run a process of another user")
    return OTHER_USER


def write_shards(folder: Path, shift: int = 0) -> Path:
    """SHARDS shards whose ids count from `shift`, indexed; all shards have the same size whatever the shift."""
    folder.mkdir(mode=0o755)
    for number in range(SHARDS):
        first = number * RECORDS
        rows = ({"id": 1_000_000 + shift + i, "pad": [1] * 40} for i in range(first, first + RECORDS))
        write(folder / f"s{number}.tfrecord", rows)
    index(folder)
    return folder


def index(folder: Path) -> None:
    words = ["node", str(ROOT / "bin" / "athanor.mjs"), "index", str(folder)]
    subprocess.run(words, check=True, capture_output=True, text=True, timeout=60)


def ids_of(steps: Iterable[list[int]]) -> list[int]:
    return [i - 1_000_000 for step in steps for i in step]


@pytest.fixture(scope="module")
def data() -> Iterator[Path]:
    """Not under pytest's own folder, which other users cannot enter, nor under /tmp, which tests hide."""
    folder = Path(tempfile.mkdtemp(prefix="ath-", dir="/var/tmp"))
    folder.chmod(0o755)
    yield write_shards(folder / "data")
    shutil.rmtree(folder)


class Node:
    """Jobs of one test: their ranks, and what is left of them at the end."""

    def __init__(self) -> None:
        self.name = f"fault-{os.getpid()}-{time.monotonic_ns() % 1_000_000_000}"
        self.ranks: list[Rank] = []
        self.others: list[subprocess.Popen[bytes]] = []
        self.folder = Path(tempfile.mkdtemp(prefix="ath-", dir="/tmp"))
        self.folder.chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_ENVIRONMENT)}
        paths = os.pathsep.join(str(ROOT / part) for part in ("python/src", "python/tests", "test/fault"))
        self.environment = {**kept, "PYTHONPATH": paths, "ATHANOR_AGENT_GRACE": "300ms"}

    def rank(self, source: Path, before: Iterable[str] = (), job: str = "", env: Any = None, **options: Any) -> Rank:
        """`before`: words of the command that come first."""
        options = {"source": str(source), "batch_size": BATCH, "seed": 3, "timeout": 20, **options}
        words = [*before, sys.executable, str(HERE / "fault_rank.py"), json.dumps(options)]
        environment = {**self.environment, "ATHANOR_JOB_ID": job or self.name, **(env or {})}
        rank = Rank(words, environment)
        self.ranks.append(rank)
        return rank

    def agent_js(self) -> str:
        """A copy of the agent that any user can read."""
        for name in ("agent.js", "agent-io.js", "agent-decode.js", "kernels.wasm"):
            shutil.copy(ROOT / "dist" / name, self.folder / name)
            (self.folder / name).chmod(0o644)
        return str(self.folder / "agent.js")

    def node_with(self, words: str = "", options: str = "") -> str:
        """A Node.js that is started with more words, and its agent with more options."""
        path = self.folder / f"node-{len(list(self.folder.iterdir()))}"
        path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec node --version\nexec node {words} "$@" {options}\n')
        path.chmod(0o755)
        return str(path)

    def agents(self, job: str = "") -> list[int]:
        return [
            pid for pid in of_job(job or self.name) if b"athanor-agent" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]

    def finish(self, *jobs: str, limit: float = 30) -> None:
        """Ends the ranks as a user does; nothing of the jobs must be left then."""
        for rank in self.ranks:
            rank.end()
        self.expect_clean(*jobs, limit=limit)

    def expect_clean(self, *jobs: str, limit: float = 30) -> None:
        end = time.monotonic() + limit
        while left := [each for job in jobs or (self.name,) for each in leftovers(job)]:
            assert time.monotonic() < end, f"left behind: {left}"
            time.sleep(0.05)

    def close(self) -> None:
        for rank in self.ranks:
            rank.kill()
        for process in self.others:
            process.kill()
            process.wait()
        for job in (self.name, *(f"{self.name}-{n}" for n in range(4))):
            for pid in of_job(job):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for user in (os.getuid(), OTHER_USER):
                for base in ("/dev/shm", "/tmp"):
                    shutil.rmtree(f"{base}/athanor-{user}/{job}", ignore_errors=True)
                    with contextlib.suppress(OSError):
                        os.rmdir(f"{base}/athanor-{user}")
        shutil.rmtree(self.folder)


@pytest.fixture
def node() -> Iterator[Node]:
    made = Node()
    yield made
    made.close()


def leftovers(job: str) -> list[str]:
    left = [f"process {pid} ({command(pid)})" for pid in of_job(job)]
    for folder in run_dirs(job):
        with contextlib.suppress(FileNotFoundError):
            left += [f"{path}{text_of(path)}" for path in [*folder.iterdir(), folder]]
    return left


class Rank:
    """A `fault_rank.py`: one command, one answer."""

    def __init__(self, words: list[str], env: dict[str, str]) -> None:
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True
        )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.pid = int(self.answer()["ready"])

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self._lines.put(line)
        self._lines.put("")

    def ask(self, *words: str) -> None:
        if self.process.stdin is None:
            raise RuntimeError("no way to ask")
        self.process.stdin.write(" ".join(words) + "\n")
        self.process.stdin.flush()

    def answer(self, limit: float = 30) -> dict[str, Any]:
        line = self._lines.get(timeout=limit)
        if line == "":
            raise RuntimeError(f"the rank ended with {self.process.wait()}:\n{self.errors()}")
        return dict(json.loads(line))

    def tell(self, *words: str, limit: float = 30) -> dict[str, Any]:
        self.ask(*words)
        return self.answer(limit)

    def next(self) -> list[int]:
        told = self.tell("next")
        assert "ids" in told, told
        return list(told["ids"])

    def epoch(self) -> list[list[int]]:
        """The rest of it."""
        steps = []
        while "end" not in (told := self.tell("next")):
            assert "ids" in told, told
            steps.append(told["ids"])
        return steps

    def errors(self) -> str:
        self.log.seek(0)
        return self.log.read()

    def end(self) -> int:
        """End of input: it leaves as a program does that is done."""
        if self.process.poll() is None and self.process.stdin is not None:
            self.process.stdin.close()
        return self.process.wait(timeout=20)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
