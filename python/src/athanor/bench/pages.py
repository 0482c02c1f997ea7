"""Pages of files in the page cache: read in, asked out, counted.

`drop` works without root and touches nobody else's pages: posix_fadvise(DONTNEED) on each file. Pages that are dirty or
mapped by a process stay, so `resident` (mincore) is what says whether a file is cold.
"""

from __future__ import annotations

import ctypes
import mmap
import os

import numpy as np

PAGE = mmap.PAGESIZE
READ = 1 << 20


def files(path: str) -> list[str]:
    """The files below a folder, indexes of Athanor left out; a file is itself."""
    if not os.path.isdir(path):
        return [path]
    found = []
    for where, folders, names in os.walk(path):
        folders[:] = [name for name in folders if name != ".athanor"]
        found += [os.path.join(where, name) for name in names]
    return sorted(found)


def read(paths: list[str]) -> int:
    """Reads the files once; their bytes."""
    buffer = bytearray(READ)
    total = 0
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while count := file.readinto(buffer):
                total += count
    return total


def drop(paths: list[str]) -> int:
    """Asks the kernel to drop the files' pages; their bytes."""
    total = 0
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            os.fsync(file.fileno())  # dirty pages cannot be dropped
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            total += os.fstat(file.fileno()).st_size
    return total


def resident(paths: list[str]) -> int:
    """Bytes of the files that the page cache holds, in whole pages."""
    mincore = ctypes.CDLL(None, use_errno=True).mincore
    mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    pages = 0
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if size == 0:
                continue
            with mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ) as mapped:
                view = np.frombuffer(mapped, np.uint8)
                held = np.zeros(-(-size // PAGE), np.uint8)
                if mincore(view.ctypes.data, size, held.ctypes.data) != 0:
                    raise OSError(ctypes.get_errno(), f"mincore of {path}")
                pages += int((held & 1).sum())
                del view
    return pages * PAGE
