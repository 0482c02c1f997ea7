"""The segment file: a session's shared memory, made by the client, written by the agent (docs/reference/protocol.md).

A memfd with every page allocated up front: it has no name, so nothing is left after any kill, and no SIGBUS can come
later. Where the agent cannot open it (`/proc/PID/fd/N` of another pid namespace), `Segment.named` makes a 0600 file in
the run directory that lives as long as this process holds its lock; files whose lock is free are swept by the next one.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
import threading

from . import _layout as layout
from .errors import AthanorError

_U64_MAX = 2**64 - 1
_PREFIX = "seg-"


class Segment:
    """`slots` slots of `slot_bytes` each behind a header of 4096 bytes. `words` are all its bytes as u64."""

    def __init__(self, fd: int, path: str | None, slots: int, slot_bytes: int) -> None:
        self.fd = fd
        self.path = path
        self.slots = slots
        self.slot_bytes = slot_bytes
        self.size = layout.HEADER_BYTES + slots * slot_bytes
        self.nonce = os.urandom(16)
        self.pid = os.getpid()
        self.map = mmap.mmap(fd, self.size)
        self.words = memoryview(self.map).cast("Q")
        head = layout.HEADER
        self.map[head["magic"] : head["magic"] + len(layout.MAGIC)] = layout.MAGIC
        struct.pack_into("<II", self.map, head["layoutVersion"], layout.LAYOUT_VERSION, slots)
        self.map[head["nonce"] : head["nonce"] + 16] = self.nonce
        struct.pack_into("<Q", self.map, head["slotBytes"], slot_bytes)
        struct.pack_into("<Q", self.map, head["wakeAt"], _U64_MAX)
        self._fence = threading.Lock()

    @classmethod
    def anonymous(cls, slots: int, slot_bytes: int) -> Segment:
        size = _size(slots, slot_bytes)
        fd = os.memfd_create("athanor-segment", os.MFD_CLOEXEC)
        try:
            _allocate(fd, size, "memfd")
            return cls(fd, None, slots, slot_bytes)
        except BaseException:
            os.close(fd)
            raise

    @classmethod
    def named(cls, run_dir: str, slots: int, slot_bytes: int) -> Segment:
        size = _size(slots, slot_bytes)
        sweep(run_dir)
        while True:
            path = os.path.join(run_dir, f"{_PREFIX}{os.getpid()}-{os.urandom(8).hex()}")
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
                # Between open and lock another client may have swept it.
                if os.fstat(fd).st_nlink == 0:
                    os.close(fd)
                    continue
                _allocate(fd, size, path)
                return cls(fd, path, slots, slot_bytes)
            except BaseException:
                os.unlink(path)
                os.close(fd)
                raise

    def fence(self) -> None:
        """Orders the stores before it against the loads after it: taking a lock is a full barrier on x86 and ARM."""
        with self._fence:
            pass

    def close(self) -> None:
        """Idempotent. Views of the memory should be dropped before, else the mapping stays until the last goes."""
        if self.fd < 0:
            return
        fd, self.fd = self.fd, -1
        if self.path is not None and self.pid == os.getpid():
            with contextlib.suppress(FileNotFoundError):  # swept with the run directory
                os.unlink(self.path)
        self.words.release()
        with contextlib.suppress(BufferError):
            self.map.close()
        os.close(fd)


def sweep(run_dir: str) -> int:
    """Removes named segments that no living process holds. Returns how many."""
    removed = 0
    for name in os.listdir(run_dir):
        if not name.startswith(_PREFIX):
            continue
        path = os.path.join(run_dir, name)
        try:
            fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue  # gone, or not ours to judge
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)
            removed += 1
        except OSError:
            pass  # held: its owner lives; or another client was faster
        finally:
            os.close(fd)
    return removed


def _size(slots: int, slot_bytes: int) -> int:
    size = layout.HEADER_BYTES + slots * slot_bytes
    if size > layout.MAX_SEGMENT_BYTES:
        raise AthanorError(
            "ATH_SEGMENT_TOO_LARGE",
            f"{slots} batches of {slot_bytes} bytes need {size} bytes of shared memory, "
            f"the limit is {layout.MAX_SEGMENT_BYTES}",
            remedy="use a smaller batch_size with grad_accum, fewer columns or a smaller max_length",
        )
    return size


def _allocate(fd: int, size: int, what: str) -> None:
    try:
        # Real pages now: a full /dev/shm or memory limit is an error here and not a SIGBUS in the training loop.
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        raise AthanorError(
            "ATH_SHM_FULL",
            f"cannot reserve {size} bytes of shared memory: {error.strerror}{_room(what)}",
            file=what,
            remedy="give the container more memory (and /dev/shm), or use a smaller batch_size",
        ) from error


def _room(path: str) -> str:
    """How much there is where a named segment should lie; a memfd has no such place, only the memory of the node."""
    try:
        found = os.statvfs(path)
    except OSError:
        return ""
    folder = os.path.dirname(path)
    return f"; {folder} has {found.f_bavail * found.f_frsize} free of {found.f_blocks * found.f_frsize} bytes"
