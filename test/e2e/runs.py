"""Starts of the example's programs as a user starts them, and what can be seen of them from outside."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "deepseek"


def environment(**more: str) -> dict[str, str]:
    """This Python's tools first, the client of this checkout, CPU only, one thread a rank."""
    # Ranks of this very test run must not be taken for ranks of the job.
    kept = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "ATHANOR_RUN_DIR")}
    return {
        **kept,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "python" / "src"),
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",
        "DS_ACCELERATOR": "cpu",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        **more,
    }


def make_data(folder: Path, samples: int, max_length: int = 64, vocabulary: int = 1024) -> Path:
    """A small data set whose samples carry their numbers."""
    command = [sys.executable, str(EXAMPLES / "make_corpus.py"), "--out", str(folder), "--ids", "--shards", "5"]
    command += ["--samples", str(samples), "--max_length", str(max_length), "--vocab", str(vocabulary)]
    subprocess.run([*command, "--megabytes", "1"], check=True, capture_output=True, timeout=120)
    return folder / "data"


def agents_of(job: str) -> list[int]:
    """Process ids of the job's agents, by the title that `ps` shows."""
    found = []
    for entry in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if Path("/proc", entry, "cmdline").read_bytes().partition(b"\0")[0].decode() == f"athanor-agent {job}":
                found.append(int(entry))
    return found


def kill_agents(job: str) -> list[int]:
    found = agents_of(job)
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return found


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Training:
    """One start of DeepSpeed with two ranks; `job` names the agent's job."""

    def __init__(self, job: str, output: Path, flags: list[str], log: Path) -> None:
        self.job = job
        self.lines: list[str] = []
        command = [sys.executable, "-m", "deepspeed.launcher.runner", "--num_gpus=2", "--master_port", str(free_port())]
        command += [str(EXAMPLES / "train.py"), "--output_dir", str(output), *flags]
        self._log = log
        self._process = subprocess.Popen(
            command,
            env=environment(ATHANOR_JOB_ID=job),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def follow(self, on_line: Callable[[str], None] | None = None, limit: float = 420) -> int:
        """Reads the output to its end; returns the exit code. `on_line` may kill."""
        deadline = time.monotonic() + limit
        try:
            if self._process.stdout is None:
                raise RuntimeError("no output to follow")
            with self._log.open("a", encoding="utf-8") as log:
                for line in self._process.stdout:
                    log.write(line)
                    self.lines.append(line.rstrip())
                    if on_line is not None:
                        on_line(self.lines[-1])
                    if time.monotonic() > deadline:
                        raise TimeoutError(f"training took longer than {limit} s:\n{self.text()}")
            return self._process.wait(timeout=60)
        finally:
            self.kill()

    def kill(self) -> None:
        """kill -9 of launcher and ranks."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def text(self) -> str:
        return "\n".join(self.lines[-40:])


def step_of(line: str) -> int | None:
    """The number in "[train] step    7  loss …"."""
    words = line.split()
    return int(words[2]) if words[:2] == ["[train]", "step"] else None


def losses(output: Path) -> dict[int, float]:
    """Loss a step; a resumed run comes by some steps again: the last line counts."""
    lines = (output / "log.jsonl").read_text().splitlines()
    return {entry["step"]: entry["loss"] for entry in map(json.loads, lines)}


def ids_by_step(log: Path, world: int) -> dict[int, list[int]]:
    """Ids that all ranks decoded from their batches in each optimizer step, sorted; the last line of a rank counts."""
    steps: dict[int, dict[int, list[int]]] = {}
    for rank in range(world):
        for line in Path(f"{log}.rank{rank}").read_text().splitlines():
            entry = json.loads(line)
            steps.setdefault(entry["step"], {})[entry["rank"]] = entry["ids"]
    return {step: sorted(i for ids in by_rank.values() for i in ids) for step, by_rank in sorted(steps.items())}
