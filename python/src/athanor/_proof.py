"""Proof of what a rank handed out: one line a step, `proof/RANK-START.jsonl` (design §4.4.12).

    {"version":1,"rank":0,"world":2,"start":"0","time":1700000000000,"view":"32 hex","data":{…},"state":{…}}  first line
    {"position":"0","rows":32,"sum":"1234"}                                                     one a step, flushed

`data`: fingerprints of the data, by those of its views in the state. `pieces`, behind it, where rows are split or
packed: what those of each view are made of, {"tokens":"32 hex","rule":"pack","maxLength":4096}.

`sum` adds, modulo 2^64, a hash of (position, shard key, record, token) over the rows with valid ≠ 0, so sums over ranks
do not depend on world size. On resume, older lines at or after the loaded position are superseded, not erased.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .errors import AthanorError

U64 = np.ndarray[Any, np.dtype[np.uint64]]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_LOW = np.uint64(0xFFFFFFFF)
_VALID = np.uint64(1 << 32)

_NEW_FILES = 2  # behind the first, where there is no room


def hash_rows(identities: U64) -> U64:
    """One hash a row. `identities`: [rows, 4] u64 {position, shard key, record, token | valid << 32 | source << 33}."""
    h = np.zeros(len(identities), np.uint64)
    for field in (identities[:, 0], identities[:, 1], identities[:, 2], identities[:, 3] & _LOW):
        h ^= field
        h += _GOLDEN  # arrays wrap modulo 2^64 without a warning
        h ^= h >> np.uint64(30)
        h *= _M1
        h ^= h >> np.uint64(27)
        h *= _M2
        h ^= h >> np.uint64(31)
    return h


def step_sum(identities: U64) -> tuple[int, int]:
    """(rows with valid ≠ 0, sum of their hashes modulo 2^64)."""
    valid = identities[:, 3] & _VALID != 0
    hashes = hash_rows(identities)
    return int(np.count_nonzero(valid)), int(hashes[valid].sum(dtype=np.uint64))


class ProofFile:
    """Appends lines; each is flushed to the kernel, so that it outlives a killed process."""

    def __init__(
        self, folder: str, rank: int, world: int, start: int, view: str, about: dict[str, Any], state: dict[str, Any]
    ) -> None:
        self.pid = os.getpid()
        self._bytes = 0  # of whole lines
        try:
            os.makedirs(folder, exist_ok=True)
            # Later launches must stand behind earlier ones, also when the clock was set back between them.
            moment = max(time.time_ns() // 1_000_000, _newest(folder, rank) + 1)
            while True:
                path = os.path.join(folder, f"{rank}-{moment}.jsonl")
                try:
                    self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
                    break
                except FileExistsError:
                    moment += 1
        except OSError as error:
            raise AthanorError(
                "ATH_PROOF_WRITE",
                f"the proof cannot be written: {error.strerror}",
                file=folder,
                remedy="make the folder writable, or give another proof_dir",
            ) from error
        self.path = path
        self._write(
            {
                "version": 1,
                "rank": rank,
                "world": world,
                "start": str(start),
                "time": moment,
                "view": view,
                **about,
                "state": state,
            }
        )

    def add(self, position: int, identities: U64) -> None:
        rows, total = step_sum(identities)
        self._write({"position": str(position), "rows": rows, "sum": str(total)})

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _write(self, line: dict[str, Any]) -> None:
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        room = True
        try:
            written = os.write(self._fd, data)
            fault = "" if written == len(data) else f"{written} of {len(data)} bytes fitted"
            room = not fault
        except OSError as error:
            fault = str(error.strerror)
            room = error.errno != errno.ENOSPC
        if not fault or (not room and any(self._anew(data) for _ in range(_NEW_FILES))):
            self._bytes += len(data)
            return
        # Whoever asks for the batch again writes its line again: it may not stand behind half of one.
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, self._bytes)
        raise AthanorError(
            "ATH_PROOF_WRITE",
            f"cannot write the proof: {fault}",
            file=self.path,
            remedy="free space there or choose another proof_dir",
        )

    def _anew(self, line: bytes) -> bool:
        """Everything so far and a line more in a new file of the same name: on Lustre one full OST is enough for
        ENOSPC, and a new file is laid on another one. False: no room there either."""
        folder, name = os.path.split(self.path)
        fresh = os.path.join(folder, f".{name}.tmp-{self.pid}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        try:
            fd = os.open(fresh, flags, 0o644)
        except OSError:
            return False
        try:
            with open(self.path, "rb") as old, open(fd, "wb", closefd=False) as new:
                new.write(old.read(self._bytes) + line)
            os.rename(fresh, self.path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(fresh)
            os.close(fd)
            return False
        os.close(self._fd)
        self._fd = fd
        return True


def _newest(folder: str, rank: int) -> int:
    """The moment of the newest proof of a rank, by its name; -1 when there is none."""
    own = re.compile(rf"{rank}-(\d+)\.jsonl")
    return max((int(found[1]) for found in map(own.fullmatch, os.listdir(folder)) if found), default=-1)


class ProofTotal(NamedTuple):
    rows: int
    sum: int


class _Part(NamedTuple):
    """Consecutive lines (position, rows, sum) of one rank with rising positions."""

    rank: int
    world: int
    start: int
    time: int
    number: int  # of the part in its file
    lines: list[tuple[int, int, int]]


def proof_total(folder: str, upto: int | None = None) -> ProofTotal:
    """Rows and sum over all ranks of the steps before position `upto` (default: all).

    The rule of src/order/proof-files.ts: parts of equal world size, start and number in their file with different ranks
    are one session; sessions follow each other by time, and one that a rank begins anew is the last; lines at or after
    the start of a later session are superseded. A last line that a kill cut off is left out; any other fault is
    ATH_PROOF_INVALID."""
    parts = [part for path in sorted(Path(folder).glob("[0-9]*-*.jsonl")) for part in _read(path)]
    sessions: list[dict[int, _Part]] = []
    for part in sorted(parts, key=lambda part: part.time):
        session: dict[int, _Part] = {}
        for at, earlier in reversed(list(enumerate(sessions))):
            first = next(iter(earlier.values()))
            if first.world != part.world:
                break  # another launch, though a kill may have left an earlier one without this rank
            if (first.start, first.number) == (part.start, part.number):
                session = earlier
                if part.rank in session:  # started again from the same place: a new launch
                    del sessions[at]
                break
        if not session or part.rank in session:
            sessions.append(session)
        session[part.rank] = part
    rows = total = 0
    limit = upto
    for session in reversed(sessions):
        for part in session.values():
            for position, line_rows, line_sum in part.lines:
                if limit is None or position < limit:
                    rows += line_rows
                    total += line_sum
        start = next(iter(session.values())).start
        limit = start if limit is None else min(limit, start)
    return ProofTotal(rows, total % 2**64)


def _read(path: Path) -> list[_Part]:
    *lines, _torn = path.read_bytes().split(b"\n")
    parts: list[_Part] = []
    offset = 0
    for number, line in enumerate(lines):
        try:
            value = json.loads(line)
            if "version" in value:
                if value["version"] != 1:
                    raise ValueError(f"version {value['version']}")
                rank, world, start, moment = (int(value[key]) for key in ("rank", "world", "start", "time"))
                parts.append(_Part(rank, world, start, moment, 0, []))
            else:
                step = (int(value["position"]), int(value["rows"]), int(value["sum"]))
                if not parts:
                    raise ValueError("no header before the first step")
                part = parts[-1]
                if part.lines and step[0] < part.lines[-1][0] + part.lines[-1][1]:
                    # The rank went back (a new epoch after `break`): from here on a session of its own.
                    part = part._replace(start=step[0], number=part.number + 1, lines=[])
                    parts.append(part)
                part.lines.append(step)
        except (ValueError, KeyError, TypeError) as error:
            raise AthanorError(
                "ATH_PROOF_INVALID",
                f"line {number + 1} of the proof cannot be read: {error}",
                file=str(path),
                byte_offset=offset,
                remedy="the file was changed after it was written",
            ) from error
        offset += len(line) + 1
    return parts
