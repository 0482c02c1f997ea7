"""Batches on a GPU: are they right, and what do they cost? To be run where there is one.

    python -m athanor.bench.device /data/shards --batch-size 256 --max-length 512 --batches 500

Three ways take turns, `--passes` times: `direct` (`device="cuda"`: the GPU reads shared memory), `staged` (the same
where that memory cannot be registered) and `pinned` (no `device`: copied and widened by the processor, then
`.to("cuda", non_blocking=True)`). A pass before them compares every batch of each way with the processor's, bit by bit.
One JSON line each: samples/s, GB/s of batches in the GPU's memory (GB are 10^9 bytes), CPU seconds of this process per
million samples; medians with min and max. Exits with 1 where a batch differs, with 2 where torch has no GPU.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .._cuda import Cuda
from ..torch import Loader


class Staged(Cuda):
    """As if registering had been refused."""

    def register(self, memory: Any) -> str | None:
        return "not tried, to see what it would cost"

    def unregister(self, memory: Any) -> None: ...


def batches_of(way: str, source: str, options: dict[str, Any], count: int, device: Any) -> Iterator[dict[str, Any]]:
    """`count` batches; `device`: an open one for the ways that have one."""
    with Loader(source, **options, device=None if way == "pinned" else "cuda") as loader:
        loader._opened_device, loader._opened_by = device, os.getpid()
        for batch in itertools.islice(loader.repeat(), count):
            if way == "pinned":
                yield {name: value.to("cuda", non_blocking=True) for name, value in batch.items()}
            else:
                yield batch


def compared(found: Iterator[dict[str, Any]], expected: Iterator[dict[str, Any]], read: Callable[[], None]) -> int:
    """How many batches were compared. Raises ValueError for one that differs."""
    count = 0
    held: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for one, other in itertools.zip_longest(found, expected):
        if one is None or other is None or list(one) != list(other):
            raise ValueError(f"batch {count}: {one and list(one)}, expected {other and list(other)}")
        held.append((one, other))
        count += 1
        if len(held) == 16:  # held for a while: a batch must not change
            _look(held, count, read)
    _look(held, count, read)
    return count


def _look(held: list[tuple[dict[str, Any], dict[str, Any]]], count: int, read: Callable[[], None]) -> None:
    read()
    for back, (one, other) in enumerate(reversed(held)):
        for name, value in other.items():
            if one[name].dtype != value.dtype or not torch.equal(one[name].cpu(), value):
                raise ValueError(f"batch {count - 1 - back}: {name} differs from the processor's")
    held.clear()


def timed(batches: Iterator[dict[str, Any]], count: int, read: Callable[[], None]) -> dict[str, float]:
    """One pass. The first batch and the end are not in it: an index may be read, memory registered and given back."""
    next(batches)
    read()
    cpu, began = time.process_time(), time.perf_counter()
    samples = size = 0
    for batch in itertools.islice(batches, count - 1):
        samples += len(next(iter(batch.values())))
        size += sum(value.nbytes for value in batch.values())
    read()
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    for _ in batches:
        pass
    return {
        "samples_s": samples / seconds,
        "gb_s": size / seconds / 1e9,
        "cpu_s_per_million": cpu / samples * 1e6,
    }


def bench(
    source: str, options: dict[str, Any], count: int, passes: int, ways: dict[str, Any], read: Callable[[], None]
) -> Iterator[dict[str, Any]]:
    """A line for each way, by name with its open device (None: `pinned`)."""
    equal = {}
    for way, device in ways.items():
        with Loader(source, **options) as loader:
            expected = itertools.islice(loader.repeat(), count)
            equal[way] = compared(batches_of(way, source, options, count, device), expected, read)
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for _ in range(passes):
        for way, device in ways.items():
            found[way].append(timed(batches_of(way, source, options, count, device), count, read))
    for way, runs in found.items():
        line: dict[str, Any] = {"way": way, "batches_equal": equal[way], "passes": passes}
        for name in runs[0]:
            values = [run[name] for run in runs]
            line[name] = {"median": statistics.median(values), "min": min(values), "max": max(values)}
        yield line


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m athanor.bench.device", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("source")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--max-length", type=int, default=512)
    parser.add_argument("--batches", type=int, default=500)
    parser.add_argument("--passes", type=int, default=5)
    given = parser.parse_args(arguments)
    options = {"batch_size": given.batch_size, "max_length": given.max_length}
    try:
        direct, staged = Cuda(torch.device("cuda")), Staged(torch.device("cuda"))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    ways = {"direct": direct, "staged": staged, "pinned": None}
    print(json.dumps({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, **vars(given)}))
    try:
        for line in bench(given.source, options, given.batches, given.passes, ways, torch.cuda.synchronize):
            print(json.dumps(line), flush=True)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
