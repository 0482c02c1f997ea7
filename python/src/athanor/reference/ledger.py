"""The ledger of replaced records, and its quota (docs/reference/quarantine.md)."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

from ..errors import AthanorError

Entry = dict[str, Any]
_READ_AGAIN = 1.0


def read_ledger(folder: str) -> list[Entry]:
    """Entries of all files of a folder, without last lines that a kill cut off. Raises ATH_LEDGER_INVALID."""
    entries = []
    for path in sorted(Path(folder).glob("quarantine-*.jsonl")):
        *lines, _torn = path.read_bytes().split(b"\n")
        for number, line in enumerate(lines, 1):
            try:
                entry = json.loads(line)
                bad_record(entry)
            except (ValueError, KeyError, TypeError) as error:
                raise AthanorError(
                    "ATH_LEDGER_INVALID",
                    f"line {number} of the ledger is damaged: {error}",
                    file=str(path),
                    remedy="restore the file or take it away",
                ) from error
            entries.append(entry)
    return entries


def bad_record(entry: Entry) -> tuple[str, str, int]:
    return str(entry["source"]), str(entry["shard"]), int(entry["record"])


class Ledger:
    """One file a session, made with its first line. An entry is written before its row is handed out."""

    def __init__(self, folder: str, quota: int) -> None:
        self._folder = folder
        self._quota = quota
        self._fd = -1
        self._path = folder
        self._known: dict[tuple[str, str, int], set[str]] = {}
        self._read()

    @property
    def distinct(self) -> int:
        return len(self._known)

    def add(self, entry: Entry, file: str) -> None:
        """Raises ATH_QUARANTINE_QUOTA where the run would pass its quota, ATH_LEDGER_WRITE."""
        line = json.dumps(entry, separators=(",", ":"), ensure_ascii=False)
        key = bad_record(entry)
        if line in self._known.get(key, ()):
            return
        if time.monotonic() - self._read_at >= _READ_AGAIN:
            self._read()
        if line in self._known.get(key, ()):
            return
        if key not in self._known and len(self._known) >= self._quota:
            raise AthanorError(
                "ATH_QUARANTINE_QUOTA",
                f"{len(self._known)} bad records were replaced in this run and 1 more is met, at most {self._quota} "
                f"may be: record {entry['record']} ({entry['code']})",
                file=file,
                record=entry["record"],
                byte_offset=entry["byteOffset"],
                remedy="look at the data with `athanor verify`, restore the shards, or raise corrupt_quota",
            )
        self._write(line)
        self._known.setdefault(key, set()).add(line)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _write(self, line: str) -> None:
        try:
            if self._fd < 0:
                os.makedirs(self._folder, exist_ok=True)
                self._fd = self._open()
            os.write(self._fd, line.encode() + b"\n")
        except OSError as error:
            raise AthanorError(
                "ATH_LEDGER_WRITE",
                f"the ledger of replaced records cannot be written: {error.strerror}",
                file=self._path,
                remedy="make the folder writable, free space there, or give another ledger_dir",
            ) from error

    def _open(self) -> int:
        moment = time.time_ns() // 1_000_000
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        while True:
            name = f"quarantine-{socket.gethostname()}-{os.getpid()}-{moment}.jsonl"
            self._path = os.path.join(self._folder, name)
            try:
                return os.open(self._path, flags, 0o644)
            except FileExistsError:
                moment += 1

    def _read(self) -> None:
        self._read_at = time.monotonic()
        for entry in read_ledger(self._folder):
            line = json.dumps(entry, separators=(",", ":"), ensure_ascii=False)
            self._known.setdefault(bad_record(entry), set()).add(line)
