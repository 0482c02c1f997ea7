"""What is on this machine: the agents of a job, and what a job left behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36


def become_reaper() -> None:
    """Orphans (agents whose rank was killed) come to this process, so that none can hide and dead ones are seen."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def children() -> list[int]:
    pid = os.getpid()
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def reap(kept: set[int]) -> None:
    """Takes leave of dead children, save those that somebody else waits for."""
    for pid in children():
        if pid not in kept:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def of_job(job: str) -> list[int]:
    """Processes started with the job in their environment: its agents (ranks are forks and carry ours)."""
    wanted = b"ATHANOR_JOB_ID=" + job.encode()
    found = []
    for entry in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if wanted in Path("/proc", entry, "environ").read_bytes().split(b"\0"):
                found.append(int(entry))
    return found


def run_dirs(job: str) -> list[Path]:
    return [Path(base, f"athanor-{os.getuid()}", job) for base in ("/dev/shm", "/tmp")]


def leftovers(job: str, limit: float) -> list[str]:
    """What is still there of a job `limit` seconds after its last rank ended; [] when it is clean."""
    end = time.monotonic() + limit
    while True:
        reap(set())
        left = [f"process {pid} ({command(pid)})" for pid in {*of_job(job), *children()}]
        for folder in run_dirs(job):
            with contextlib.suppress(FileNotFoundError):  # it goes while we look
                left += [f"{path}{text_of(path)}" for path in [*folder.iterdir(), folder]]
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.02)


def command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip() or "dead"
    return "gone"


def text_of(path: Path) -> str:
    return f":\n{path.read_text(errors='replace')}" if path.name == "agent.log" else ""
