"""One measurement of `athanor bench formats`: one reader over one folder, for some seconds, in a process of its own.

    python -m athanor.bench.formats.measure '{"reader": "athanor", "format": "parquet", "folder": …, "batch": 32,
        "width": 512, "samples": 100000, "seconds": 5, "seed": 1, "cold": false, "shuffle_memory": null}'

Prints one JSON line: {"samples", "seconds", "cpu_s", "trainer_cpu_s", "first_s", "bytes", "reads", "sum"}. The span
begins behind the first batch. `cpu_s` is user + system of this process, its children and the agent, `trainer_cpu_s`
without the agent. `reads`: [number, bytes] of the agent's in the span. Cold: the files' pages are dropped before, and
the span ends with the epoch.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import pages
from .peers import PEERS

#: A token stream is cut every `width` tokens; the others have their own rows.
STREAMS = ("megatron", "npy")


def athanor(c: dict[str, Any]) -> tuple[Any, Iterator[Any]]:
    import athanor.torch

    options = {"sample_rule": "stream"} if c["format"] in STREAMS else {}
    loader = athanor.torch.Loader(
        c["folder"],
        batch_size=c["batch"],
        max_length=c["width"],
        columns=["input_ids", "attention_mask"],
        seed=c["seed"],
        shuffle_memory=c["shuffle_memory"],
        drop_last=True,
        rank=0,
        world_size=1,
        **options,
    )
    batches = ((batch["input_ids"], batch["attention_mask"]) for batch in loader.repeat())
    return loader, batches


def peer(c: dict[str, Any]) -> Iterator[Any]:
    _, _, read = PEERS[c["format"]]
    for epoch in itertools.count():
        yield from read(c["folder"], c["batch"], c["width"], c["seed"] + epoch)


def counters(loader: Any) -> np.ndarray[Any, Any]:
    """CPU seconds of the trainer and of the agent; reads of the agent, and their bytes."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    trainer = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
    if loader is None:
        return np.array([trainer, 0.0, 0.0, 0.0])
    agent = loader.stats()["agent"]
    return np.array([trainer, agent["cpuSeconds"], agent["stages"]["reads"], agent["stages"]["readBytes"]])


def measure(c: dict[str, Any]) -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)  # as torchrun does
    size = pages.drop(pages.files(c["folder"])) if c["cold"] else 0
    start = time.perf_counter()
    loader, batches = athanor(c) if c["reader"] == "athanor" else (None, peer(c))
    ids, _ = next(batches)
    if tuple(ids.shape) != (c["batch"], c["width"]) or ids.dtype != torch.int64:
        raise ValueError(f"expected int64 [{c['batch']}, {c['width']}], got {ids.dtype} {tuple(ids.shape)}")
    first = time.perf_counter() - start
    before = counters(loader)
    begin = now = time.perf_counter()
    samples = c["batch"] if c["cold"] else 0
    checked = 0
    while (samples < c["samples"] - c["batch"]) if c["cold"] else (now - begin < c["seconds"]):
        ids, mask = next(batches)
        checked += int(ids[0, 0]) + int(mask[-1, -1])
        samples += len(ids)
        now = time.perf_counter()
    result = {"samples": samples, "seconds": now - begin + (first if c["cold"] else 0.0), "first_s": first}
    trainer, agent, reads, read_bytes = (counters(loader) - before).tolist()
    result.update(cpu_s=trainer + agent, trainer_cpu_s=trainer, reads=[reads, read_bytes], bytes=size, sum=checked)
    if loader is not None:
        loader.close()
    return result


def main() -> None:
    c = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints goes to stderr
    if c["reader"] == "peer" and (c["format"] not in PEERS or importlib.util.find_spec(PEERS[c["format"]][1]) is None):
        answers.write(json.dumps({"missing": True}) + "\n")
    else:
        answers.write(json.dumps(measure(c)) + "\n")
    answers.flush()
    answers.close()
    os._exit(0)  # libraries with threads of their own take their time to leave


if __name__ == "__main__":
    main()
