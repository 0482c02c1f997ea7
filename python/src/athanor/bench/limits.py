"""What this machine can do at all: memory copies, cached and cold reads, tmpfs. Prints one JSON line.

    python -m athanor.bench.limits '{"paths": ["/data"], "passes": 5, "shm": "/dev/shm", "mib": 256}'

`{"limits": [{"name", "wall": [GB/s of each pass], "cpu": [GB/s by CPU time], "cold": null, or the share of the files
that was in the cache behind the drop}], "bytes", "python", "numpy"}`. GB are 10^9 bytes. The passes of all limits take
turns. By CPU time: bytes over the CPU seconds of this process, which neighbours move less.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from . import pages

MIB = 1 << 20
COPIES = 3


def memcpy(threads: int, size: int) -> Callable[[], int]:
    lib = ctypes.CDLL(None)
    lib.memcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    pairs = [(np.ones(size, np.uint8), np.ones(size, np.uint8)) for _ in range(threads)]

    def copy(a: np.ndarray, b: np.ndarray) -> None:
        for _ in range(COPIES):
            lib.memcpy(a.ctypes.data, b.ctypes.data, size)

    def run() -> int:
        _together([lambda a=a, b=b: copy(a, b) for a, b in pairs])
        return threads * COPIES * size

    return run


def read(paths: list[str], size: int, threads: int = 1, direct: bool = False) -> Callable[[], int]:
    """Files one after the other, `size` bytes a read; several threads share the files."""

    def go(mine: list[str]) -> None:
        buffer = mmap.mmap(-1, size)  # aligned, as O_DIRECT asks
        for path in mine:
            file = os.open(path, os.O_RDONLY | (os.O_DIRECT if direct else 0))
            try:
                at = 0
                while count := os.preadv(file, [buffer], at):
                    at += count
            finally:
                os.close(file)

    def run() -> int:
        _together([lambda i=i: go(paths[i::threads]) for i in range(threads)])
        return sum(os.path.getsize(path) for path in paths)

    return run


class Shm:
    """One file of a tmpfs: pages new, written again, mapped for the first time, read again."""

    def __init__(self, folder: str, size: int) -> None:
        self.path, self.size = f"{folder}/athanor-limits-{os.getpid()}", size
        self.source = np.ones(MIB, np.uint8)
        self.file = -1
        self.words: Any = None

    def new(self) -> int:
        self.close()
        self.file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        os.unlink(self.path)  # nothing stays behind a kill
        os.ftruncate(self.file, self.size)
        return self.again()

    def again(self) -> int:
        for at in range(0, self.size, MIB):
            os.pwrite(self.file, self.source, at)
        return self.size

    def first_touch(self) -> int:
        self.words = np.frombuffer(mmap.mmap(self.file, self.size, mmap.MAP_SHARED, mmap.PROT_READ), np.int64)
        return self.sum()

    def sum(self) -> int:
        self.words.sum()
        return self.size

    def close(self) -> None:
        self.words = None
        if self.file >= 0:
            os.close(self.file)
        self.file = -1


def _together(works: list[Callable[[], None]]) -> None:
    failed: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def measure(c: dict[str, Any]) -> dict[str, Any]:
    paths = [file for path in c["paths"] for file in pages.files(path)]
    size = sum(os.path.getsize(path) for path in paths)
    block = c["mib"] * MIB
    shm = Shm(c["shm"], block)
    # name, work, cold
    limits: list[tuple[str, Callable[[], int], bool]] = [
        ("memcpy, 1 thread", memcpy(1, block), False),
        ("memcpy, 2 threads", memcpy(2, block), False),
        *((f"cached read, {k} MiB a read", read(paths, k * MIB), False) for k in (1, 4, 16)),
        ("cached read, 4 MiB, 2 threads", read(paths, 4 * MIB, 2), False),
        *((f"cold read, {k} MiB a read", read(paths, k * MIB), True) for k in (1, 4, 16)),
        ("cold read, 4 MiB, 4 threads", read(paths, 4 * MIB, 4), True),
        ("O_DIRECT read, 4 MiB", read(paths, 4 * MIB, direct=True), True),
        ("O_DIRECT read, 4 MiB, 4 threads", read(paths, 4 * MIB, 4, direct=True), True),
        ("tmpfs, write of new pages", shm.new, False),
        ("tmpfs, write again", shm.again, False),
        ("tmpfs, mapped sum, first touch", shm.first_touch, False),
        ("tmpfs, mapped sum, again", shm.sum, False),
    ]
    found: dict[str, dict[str, Any]] = {
        name: {"name": name, "wall": [], "cpu": [], "cold": 0.0 if cold else None} for name, _, cold in limits
    }
    pages.read(paths)
    for _ in range(c["passes"]):
        for name, work, cold in limits:
            result = found[name]
            if "unsupported" in result:
                continue
            if cold:
                pages.drop(paths)
                result["cold"] = max(result["cold"], pages.resident(paths) / size)
            elif name.startswith("cached"):
                pages.read(paths)
            wall, cpu = time.perf_counter(), time.process_time()
            try:
                done = work()
            except OSError as error:  # a file system without O_DIRECT
                result["unsupported"] = str(error)
                continue
            result["wall"].append(done / (time.perf_counter() - wall) / 1e9)
            result["cpu"].append(done / max(time.process_time() - cpu, 1e-6) / 1e9)
    shm.close()
    versions = {"python": sys.version.split()[0], "numpy": np.__version__}
    return {"limits": list(found.values()), "bytes": size, **versions}


if __name__ == "__main__":
    print(json.dumps(measure(json.loads(sys.argv[1]))))
