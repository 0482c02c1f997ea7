"""What a loader asks of whoever serves it: an agent (`_session`) or nobody but itself (`reference`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import _arguments
from ._batches import BatchSizes
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


def order_request(
    sizes: BatchSizes,
    mixed: bool,
    seed: int,
    shuffle: str,
    shuffle_memory: int | str,
    lanes: int | None,
    window: int | None,
    unit: str,
    last: str,
    drop_last: bool,
) -> dict[str, Any]:
    """The `order` field of the hello."""
    _arguments.one_of("shuffle", shuffle, ("window", "global", "none"))
    _arguments.one_of("unit", unit, ("extent", "shard"))
    _arguments.one_of("last", last, ("carry", "drop", "pad"))
    if drop_last:
        if last == "pad":
            raise ValueError('last must be "drop" or left out when drop_last is True, got "pad"')
        last = "drop"
    if len(sizes.ramp) > 1 and last != "carry":
        raise ValueError(f'last must be "carry" with a ramp in global_batch_size, got {last!r}')
    if mixed and last == "pad":
        raise ValueError('last must be "carry" or "drop" with a mix (evaluate each source by itself), got "pad"')
    if not isinstance(seed, int) or not 0 <= seed < 2**64:
        raise ValueError(f"seed must be a whole number in 0..2^64-1, got {seed!r}")
    memory = _arguments.size("shuffle_memory", shuffle_memory)
    for name, value in (("lanes", lanes), ("window", window)):
        if value is not None:
            _arguments.at_least_one(name, value)
    return {
        "seed": str(seed),
        "shuffle": shuffle,
        "shuffle_memory": memory,
        "lanes": lanes,
        "window": window,
        "unit": unit,
        "last": last,
        "global_batch": sizes.global_batch,
        "ramp": [list(entry) for entry in sizes.ramp] if len(sizes.ramp) > 1 else None,
    }
