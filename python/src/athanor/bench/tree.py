"""What /proc says of this process and its descendants: CPU seconds and memory.

An agent is no descendant (it has left the session of the rank that started it); the bench counts it by itself.
"""

from __future__ import annotations

import os

TICK = os.sysconf("SC_CLK_TCK")


def descendants() -> list[int]:
    """Process ids of live descendants of this process, agents left out."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (stat := _stat(int(entry))) is not None:
            children.setdefault(int(stat[1]), []).append(int(entry))
    found: list[int] = []
    queue = [os.getpid()]
    while queue:
        for pid in children.get(queue.pop(), []):
            if not _is_agent(pid):
                found.append(pid)
                queue.append(pid)
    return found


def cpu_seconds(pids: list[int]) -> float:
    """User + system of processes, and of their children that have ended; 10 ms resolution."""
    ticks = 0
    for pid in pids:
        if (stat := _stat(pid)) is not None:
            ticks += sum(int(stat[i]) for i in (11, 12, 13, 14))
    return ticks / TICK


def memory(pids: list[int]) -> dict[str, int]:
    """Bytes of this process and of `pids`, its descendants.

    `anonymous`: this process's in whole, since what it shares with the process it was forked from is its own in a
    process that was not; of descendants what only they have. `file`, `shmem`: proportional (PSS).
    """
    total = {"anonymous": 0, "file": 0, "shmem": 0}
    for pid in [os.getpid(), *pids]:
        sizes = _rollup(pid)
        own = pid == os.getpid()
        total["anonymous"] += sizes.get("Anonymous" if own else "Private_Dirty", 0)
        total["file"] += sizes.get("Pss_File", 0)
        total["shmem"] += sizes.get("Pss_Shmem", 0)
    return total


def _rollup(pid: int) -> dict[str, int]:
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            next(file)
            return {name: int(rest.split()[0]) * 1024 for name, rest in (line.split(":", 1) for line in file)}
    except OSError:
        return {}


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the third on; None when the process is gone."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            text = file.read()
    except OSError:
        return None
    return text[text.rindex(")") + 2 :].split()


def _is_agent(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read(14) == b"athanor-agent "
    except OSError:
        return False
