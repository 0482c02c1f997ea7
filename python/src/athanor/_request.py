"""What a loader asks of whoever serves it: an agent (`_session`) or nobody but itself (`reference`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._ranks import Ranks
from ._slices import Slices


@dataclass(frozen=True)
class Request:
    """What a session asks for; the fields of the protocol's `hello`."""

    ranks: Ranks
    here: tuple[int, ...]  # ranks of this node, one entry for each process that takes data
    builds: bool  # this node makes a missing index
    job: str
    agent: str  # "auto" | "external" | "none"
    mode: str  # "stream" | "random"
    view: dict[str, Any]
    order: dict[str, Any]
    batch_size: int
    slices: Slices  # of each row, for context parallelism
    timeout: float
    mix: dict[str, Any] | None = None
    stride: int = 1
    offset: int = 0
    quarantine: dict[str, Any] | None = None
    light: bool = False  # only the numbers: no batches, no shared memory
