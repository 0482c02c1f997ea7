"""One rank of `athanor bench train` and `bench peers`: a process that trains on nothing, at the pace of an emulated
accelerator.

Driven by JSON lines on stdin, answers with JSON lines on stdout (one answer a command, {"error": …} on failure):

    {"cmd": "hello", …}    imports torch when needed, and a peer's library  -> {"pid", "python", "numpy", "torch", …}
    {"cmd": "fork", …}     a rank with these imports, which serves a socket -> {"pid"}
    {"cmd": "join"}        the process group of all ranks (gloo)            -> {}
    {"cmd": "cache", …}    reads files once (warm), or asks the kernel to drop their pages (cold)  -> {"bytes"}
    {"cmd": "open", …}     new loader, first batch        -> {"first_s", "order", "disk_bytes"}
    {"cmd": "check", …}    are the rows of the next batches rows of the memory map?   -> {"rows"}
    {"cmd": "run", …}      the timed span                 -> {"steps", "samples", "total_s", "compute_s", …}
    {"cmd": "settle"}      until the agent reads no more by itself         -> {}
    {"cmd": "state"}       Athanor's                      -> its state
    {"cmd": "memory"}      of this process and its workers, bytes           -> {"anonymous", "file", "shmem"}
    {"cmd": "close"}       ends the loader                -> {}
    end of input           leaves

Time: the span begins when `run` arrives, after the first batch, which MLPerf Storage leaves out, and ends with the
emulated step of the last batch. CPU seconds are user + system of this process; those of its workers are apart.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any, TextIO

from . import contenders, pages, tree
from .peers.loaders import PEERS, SETUP
from .peers.rows import check_rows
from .step import compute

NAIVE_SAMPLES = 16
LINKS: list[socket.socket] = []


class Rank:
    def __init__(self) -> None:
        self.config: dict[str, Any] = {}
        self.loader: Any = None
        self.batches: Iterator[dict[str, Any]] | None = None

    def hello(self, c: dict[str, Any]) -> dict[str, Any]:
        import numpy

        torch_version = None
        if c["client"] == "torch":
            import torch
            import torch.distributed
            import torch.utils.data.distributed

            torch.set_num_threads(1)  # as torchrun does: OMP_NUM_THREADS=1 a rank
            torch_version = torch.__version__
        # An import is no part of the first batch.
        setup = SETUP.get(c.get("contender") or "")
        if setup is not None:
            setup()
        else:
            importlib.import_module(f"athanor.{c['client']}")
        return {
            "pid": os.getpid(),
            "python": sys.version.split()[0],
            "numpy": numpy.__version__,
            "torch": torch_version,
            "packages": {name: version(name) for name in c.get("packages", [])},
        }

    def join(self, c: dict[str, Any]) -> dict[str, Any]:
        import torch.distributed as dist

        dist.init_process_group("gloo")
        return {}

    def cache(self, c: dict[str, Any]) -> dict[str, Any]:
        paths = [file for path in c["paths"] for file in pages.files(path)]
        total = pages.drop(paths) if c["drop"] else pages.read(paths)
        return {"bytes": total, "resident": pages.resident(paths)}

    def memory(self, c: dict[str, Any]) -> dict[str, Any]:
        return tree.memory(tree.descendants())

    def open(self, c: dict[str, Any]) -> dict[str, Any]:
        self.config = c
        disk = _io()["read_bytes"]
        start = time.perf_counter()
        if c["contender"] == "athanor":
            self.loader = contenders.open_athanor(c)
            if "resume" in c:
                self.loader.load_state_dict(c["resume"])
            self.batches = self.loader.repeat()
        else:
            make = contenders.PLAIN.get(c["contender"]) or PEERS[c["contender"]]
            self.batches = make({**c, "batch": self._batch()})
        if c["contender"] == "naive":
            return {
                "first_s": None,
                "order": None,
                "disk_bytes": 0,
            }  # a batch takes seconds: the run itself is its first batch
        batch = next(self.batches)
        first = time.perf_counter() - start
        self._check(batch)
        return {"first_s": first, "order": self._order(), "disk_bytes": _io()["read_bytes"] - disk}

    def check(self, c: dict[str, Any]) -> dict[str, Any]:
        if self.batches is None:
            raise RuntimeError("check before open")
        # Megatron's format holds no mask.
        return {"rows": check_rows(self.batches, c["memmap"], self.config["contender"] != "megatron")}

    def settle(self, c: dict[str, Any]) -> dict[str, Any]:
        """What is read ahead is there when nothing came for a second; without an agent nothing is read ahead."""
        reads = -1
        while self.loader is not None and reads != (now := self.loader.stats()["agent"]["storage"]["requests"]):
            reads = now
            time.sleep(1.0)
        return {}

    def state(self, c: dict[str, Any]) -> dict[str, Any]:
        return dict(self.loader.state_dict())

    def run(self, c: dict[str, Any]) -> dict[str, Any]:
        if self.batches is None:
            raise RuntimeError("run before open")
        step_s = c["step_ms"] / 1000
        naive = self.config["contender"] == "naive"
        stop_s = 0.0 if naive else c["seconds"]
        # `samples`: the span ends there, when that comes first; `period_ms`: a step begins no earlier than so long
        # behind the one before, so that many ranks together keep one rate.
        stop_steps = c.get("samples", sys.maxsize) // self._batch()
        period_s = c.get("period_ms", 0.0) / 1000
        gc.collect()
        workers = tree.descendants()
        workers_cpu = tree.cpu_seconds(workers)
        io = _io()
        cpu = time.process_time()
        steps = touched = 0
        computed = stalled = longest = 0.0
        start = now = time.perf_counter()
        while True:
            batch = next(self.batches)
            got = time.perf_counter()
            stalled += got - now
            longest = max(longest, got - now)
            touched += int(batch["input_ids"][0, 0]) + int(batch["attention_mask"][-1, -1])
            if not naive:
                computed += compute(step_s)
            steps += 1
            now = time.perf_counter()
            if now - start >= stop_s or steps >= stop_steps:
                break
            if period_s > 0 and (early := start + steps * period_s - now) > 0:
                time.sleep(early)
                now = time.perf_counter()
        total = now - start
        cpu = time.process_time() - cpu
        after = _io()
        result = {
            "steps": steps,
            "samples": steps * self._batch(),
            "total_s": total,
            "compute_s": computed,
            "stall_s": stalled,
            "longest_stall_s": longest,
            "cpu_s": cpu,
            "workers_cpu_s": tree.cpu_seconds(workers) - workers_cpu,
            "read_bytes": after["rchar"] - io["rchar"],
            "disk_bytes": after["read_bytes"] - io["read_bytes"],
        }
        return self._scaled(result, step_s) if naive else result

    def close(self) -> dict[str, Any]:
        if self.loader is not None:
            self.loader.close()
        self.loader = self.batches = None
        gc.collect()
        return {}

    def _batch(self) -> int:
        return NAIVE_SAMPLES if self.config["contender"] == "naive" else self.config["batch"]

    def _scaled(self, r: dict[str, Any], step_s: float) -> dict[str, Any]:
        """16 samples stand for a batch: num_workers is 0, so loading and computing take turns and times add up."""
        scale = self.config["batch"] / NAIVE_SAMPLES
        load = r["total_s"] * scale
        return {
            **r,
            "samples": self.config["batch"],
            "total_s": load + step_s,
            "compute_s": step_s,
            "stall_s": load,
            "longest_stall_s": load,
            "cpu_s": r["cpu_s"] * scale,
            "read_bytes": r["read_bytes"] * scale,
            "disk_bytes": r["disk_bytes"] * scale,
            "first_s": load,
            "scaled_from": NAIVE_SAMPLES,
        }

    def _order(self) -> dict[str, Any] | None:
        """The order as the agent resolved it, from the loader's own state."""
        if self.loader is None:
            return None
        state = self.loader.state_dict()
        segment = state["segments"][-1]
        source = state["sources"][segment["sources"][0]]
        return {"shuffle": source["shuffle"], "window": source["window"], "lanes": segment["L"]}

    def _check(self, batch: dict[str, Any]) -> None:
        expected = (self._batch(), self.config["width"])
        for name in ("input_ids", "attention_mask"):
            if tuple(batch[name].shape) != expected or str(batch[name].dtype).split(".")[-1] != "int64":
                found = f"{batch[name].dtype} {tuple(batch[name].shape)}"
                raise ValueError(f"{self.config['contender']}: {name} must be int64 {expected}, got {found}")


def _io() -> dict[str, int]:
    """rchar: bytes asked of read(); read_bytes: bytes fetched from the block layer, page faults included."""
    with open("/proc/self/io") as file:
        return {key: int(value) for key, value in (line.split(":") for line in file)}


def fork(c: dict[str, Any]) -> int:
    """Process id of a child that serves the socket `c["socket"]` as this process serves its stdin; 0 in the child."""
    while True:  # those that have ended
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                break
        except ChildProcessError:
            break
    gc.collect()
    gc.freeze()  # what is there now is never touched by the collectors of the children: its pages stay shared
    return os.fork()


def serve(commands: TextIO, answers: TextIO) -> None:
    rank = Rank()
    known: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        name: getattr(rank, name)
        for name in ("hello", "join", "cache", "open", "check", "run", "settle", "state", "memory")
    }
    known["close"] = lambda c: rank.close()
    for line in commands:
        command = json.loads(line)
        try:
            if command["cmd"] == "fork":
                pid = fork(command)
                if pid == 0:
                    os.environ.update(command["environment"])
                    link = socket.socket(socket.AF_UNIX)
                    link.connect(command["socket"])
                    LINKS.append(link)  # closed by the end of the process, not before
                    null = os.open(os.devnull, os.O_RDONLY)
                    os.dup2(null, 0)
                    serve(link.makefile("r"), link.makefile("w"))
                    sys.exit(0)
                answer: dict[str, Any] = {"pid": pid}
            else:
                answer = known[command["cmd"]](command)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def main() -> None:
    # Answers go to the real stdout; whatever a library prints goes to stderr.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
