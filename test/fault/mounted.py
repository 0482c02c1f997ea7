"""A folder behind a file system that fails on request, for a fixture."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from conftest import end_agents
from faultfs import FaultFs


@contextmanager
def mounted(run_dir: Path) -> Iterator[FaultFs]:
    """`run_dir/real`, which is there, at `run_dir/mount`; nothing of it hangs afterwards, and no agent is left."""
    (run_dir / "mount").mkdir()
    with FaultFs(run_dir / "real", run_dir / "mount") as fs:
        yield fs
        fs.clear()
        end_agents(run_dir)
