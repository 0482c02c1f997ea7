"""One live connection to an agent: control lines, the bell, and batches out of the segment (reference/protocol.md).

A connection ends with `Gone` when the agent goes away; `_session.py` then makes another. The only work a batch costs
here: wait, one copy with cast into memory that belongs to the user, release.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import socket
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from . import _layout as layout
from . import _spawn
from ._ahead import Ahead
from ._columns import Column, Factory
from ._control import Control, Gone, garbage
from ._segment import Segment
from .errors import AthanorError, from_record

log = logging.getLogger("athanor")

# Spinning longer than a wake-up costs (some 50 µs) only takes the core away from whoever fills the slot.
_SPIN_NS = 50_000
# After a wait longer than this the next one is taken to be long too: it sleeps at once.
_SHORT_WAIT_NS = 150_000
_WARN_AT = (10.0, 60.0)  # then each further 60 s
_PULSE = 1.0  # how often one who waits looks whether the agent lives
_ANSWER_WAIT = 2.0  # how long a question to the agent may delay a warning

_WAITING = layout.HEADER["waiting"] // 8
_WAKE_AT = layout.HEADER["wakeAt"] // 8
_RELEASED = layout.SLOT["released"] // 8
_U32 = 0xFFFFFFFF


class Taken(NamedTuple):
    """A batch out of its slot."""

    batch: dict[str, Any]
    flags: int
    truncated: int
    ids: np.ndarray[Any, np.dtype[np.uint64]] | None  # [rows, 4]
    position: int
    replaced: int = 0  # rows in which another record stands in for a bad one


class Connection:
    """Control, bell and segment of one session. Not thread-safe."""

    def __init__(self, peer: socket.socket, path: str, timeout: float, label: str) -> None:
        self.control = Control(peer)
        self.path = path
        self.timeout = timeout
        self.label = label
        self.segment: Segment | None = None
        self.bell: socket.socket | None = None
        self.view: dict[str, Any] = {}
        self.next_seq = 1
        self.last_copy_ns = 0
        self._answers: dict[str, dict[str, Any]] = {}
        self._heard: list[dict[str, Any]] = []  # read while nobody waited
        self._hear_at = 0.0
        self._pid = os.getpid()
        self._ahead: Ahead[Taken] = Ahead()
        self._slow_trainer = False
        self._spins = True

    # -- handshake

    def hello(self, message: dict[str, Any], on_progress: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """Sends the hello, returns the agent's view. `timeout` counts from the last line of progress."""
        self.control.send(message)
        self.view = self._expect("view", "opening the data", on_progress)
        if self.view.get("protocol") != layout.PROTOCOL:
            raise AthanorError(
                "ATH_PROTOCOL_MISMATCH",
                f"the agent (version {self.view.get('version')}) speaks protocol {self.view.get('protocol')}, "
                f"this client (version {message['version']}) speaks {layout.PROTOCOL}",
                remedy="install the same version of the npm package `athanor` and of `athanor-data`, then end the old "
                "agent",
            )
        return self.view

    def attach(self, segment: Segment, columns: list[Column], batch_size: int) -> None:
        """Gives the agent the segment; afterwards batches can be taken."""
        self.segment = segment
        self._columns = columns
        self._batch_size = batch_size
        named = segment.path is not None
        self.control.send(
            {
                "type": "segment",
                "pid": segment.pid,
                "fd": None if named else segment.fd,
                "path": os.path.basename(segment.path) if segment.path is not None else None,
                "nonce": segment.nonce.hex(),
                "slots": segment.slots,
            }
        )
        session = self._expect("ready", "handing over its memory").get("session")
        bell = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.bell = bell
        try:
            bell.settimeout(30.0)
            bell.connect(self.path)
            bell.sendall(json.dumps({"type": "bell", "session": session}).encode() + b"\n")
            bell.setblocking(False)
        except OSError as error:
            raise Gone(str(error)) from error
        self._poll = select.poll()
        self._poll.register(self.control.socket, select.POLLIN)
        self._poll.register(bell, select.POLLIN)
        self._slots = segment.slots
        size = segment.slot_bytes
        starts = [layout.HEADER_BYTES + slot * size for slot in range(segment.slots)]
        self._slot_words = [start // 8 for start in starts]
        self._words = segment.words
        self._identities = [
            np.frombuffer(
                segment.map, np.uint64, batch_size * layout.IDENTITY_BYTES // 8, start + layout.SLOT["identities"]
            ).reshape(batch_size, layout.IDENTITY_BYTES // 8)
            for start in starts
        ]
        for column in columns:
            column.map(segment.map, starts, batch_size)

    # -- batches

    def take(self, factory: Factory, expect: int | None, rows: int, identities: bool) -> Taken:
        """Waits for the next batch and copies it out, unless that was done ahead.

        `expect`: the position that it must have; None: random access, where `rows` leading rows are wanted."""
        if time.monotonic() >= self._hear_at:
            self._hear()
        if self._ahead.begun:
            ahead = self._ahead.result()
            if ahead is not None and ahead.position == expect:
                self.last_copy_ns = 0  # it was not this thread's time
                return ahead
        n = self.next_seq
        w = self._slot_words[(n - 1) % self._slots]
        if self._words[w] != n:
            self._wait(n, w)
        began = time.perf_counter_ns()
        taken = self._copy(n, w, factory, expect, rows, identities)
        self.last_copy_ns = time.perf_counter_ns() - began
        return taken

    def hand_out(self, factory: Factory, expect: int, rows: int, identities: bool) -> None:
        """A batch goes to the trainer now. If that one computes for long, the batch at `expect` is copied meanwhile."""
        if self._slow_trainer:
            self._ahead.start(lambda: self._copy_if_there(factory, expect, rows, identities))
        self._ahead.returned()

    def asked(self) -> None:
        """The trainer asks for a batch."""
        self._slow_trainer = self._ahead.worth_it()

    def _copy_if_there(self, factory: Factory, expect: int, rows: int, identities: bool) -> Taken | None:
        n = self.next_seq
        w = self._slot_words[(n - 1) % self._slots]
        return self._copy(n, w, factory, expect, rows, identities) if self._words[w] == n else None

    def _copy(self, n: int, w: int, factory: Factory, expect: int | None, rows: int, identities: bool) -> Taken:
        """Copies batch n, which is there, and gives its slot back."""
        fence = opened(self.segment).fence
        words = self._words
        slot = (n - 1) % self._slots
        fence()
        position = words[w + 1]
        found_rows = words[w + 3] & _U32
        flags = words[w + 3] >> 32
        truncated, replaced = words[w + 4] & _U32, words[w + 4] >> 32
        # Random access: rows beyond those asked for only fill the slot.
        random = expect is None and rows <= found_rows <= self._batch_size
        fits = random or (found_rows == rows and position == expect)
        if not fits:
            raise garbage(
                f"batch {n} with position {position} and {found_rows} rows, expected position {expect} and {rows} rows"
            )
        batch = {column.name: column.take(factory, slot, rows) for column in self._columns}
        ids = self._identities[slot][:rows].copy() if identities else None
        fence()
        if words[w] != n:
            raise garbage(f"batch {words[w]} over batch {n} while it was being copied")
        words[w + _RELEASED] = n
        self.next_seq = n + 1
        fence()
        if words[_WAKE_AT] <= n:
            self._ring()
        return Taken(batch, flags, truncated, ids, position, replaced)

    def seek(self, position: int) -> None:
        """The next batch begins at `position`; what the agent made before is void."""
        segment = opened(self.segment)
        self._ahead.result()  # of another position: dropped
        self._answers.pop("seeked", None)
        self.control.send({"type": "seek", "position": str(position)})
        seq = self._answer("seeked", "moving to another position").get("seq")
        if not isinstance(seq, int) or seq < self.next_seq:
            raise garbage(f"seeked to batch {seq!r}, expected at least {self.next_seq}")
        for void in range(max(self.next_seq, seq - segment.slots), seq):
            self._words[self._slot_words[(void - 1) % segment.slots] + _RELEASED] = void
        self.next_seq = seq
        segment.fence()
        if self._words[_WAKE_AT] < seq:
            self._ring()

    def stats(self) -> dict[str, Any]:
        self._ahead.settle()
        self._answers.pop("stats", None)
        self.control.send({"type": "stats"})
        stats = self._answer("stats", "asking for its counters", 10.0).get("stats")
        return stats if isinstance(stats, dict) else {}

    def close(self, polite: bool) -> None:
        """`polite`: say so first. A forked child only drops its copies of the descriptors."""
        if self._pid == os.getpid():
            self._ahead.close()
        if polite:
            with contextlib.suppress(Gone, AthanorError):
                self.control.send({"type": "close"})
        self.control.close()
        if self.bell is not None:
            self.bell.close()
        if self.segment is not None:
            self._identities = []
            for column in getattr(self, "_columns", []):
                column.unmap()
            self._words = memoryview(b"")
            self.segment.close()

    # -- waiting

    def _wait(self, n: int, w: int) -> None:
        """Returns when batch n is there. Spins, if the last wait was short, then rings and sleeps on both sockets."""
        words = self._words
        clock = time.perf_counter_ns
        began = clock()
        if self._spins:
            spin_end = began + _SPIN_NS
            while clock() < spin_end:
                if words[w] == n:
                    return
        try:
            words[_WAITING] = n
            opened(self.segment).fence()
            self._sleep(n, w)
        finally:
            words[_WAITING] = 0
        self._spins = clock() - began < _SHORT_WAIT_NS

    def _sleep(self, n: int, w: int) -> None:
        watch = _Watch(self, "waiting for its next batch")
        self._ring()
        while True:
            seq = self._words[w]
            if seq == n:
                return
            if seq > n:
                raise garbage(f"batch {seq} where batch {n} was due")
            self._look(watch.look())

    def _look(self, timeout: float) -> None:
        """Sleeps until a socket speaks; files what the control line says."""
        opened(self.segment)
        if self._heard:
            return self._file(self._lines())
        for fd, _ in self._poll.poll(timeout * 1000.0):
            if self.bell is not None and fd == self.bell.fileno():
                try:
                    if not self.bell.recv(4096):
                        self._file(self._lines())  # an error line tells more than a closed bell
                        raise Gone("the agent closed the bell")
                except BlockingIOError:
                    pass
                except OSError as error:
                    raise Gone(str(error)) from error
            else:
                self._file(self._lines())

    def _ring(self) -> None:
        if self.bell is None:
            return
        try:
            self.bell.send(b"\1")
        except BlockingIOError:
            pass  # thousands of rings are waiting there: it will look
        except OSError as error:
            self._file(self._lines())
            raise Gone(str(error)) from error

    def _hear(self) -> None:
        """Logs warnings, which else came when a batch is waited for. All other lines are for who waits: batches that
        are there come before the error behind them."""
        self._hear_at = time.monotonic() + _PULSE
        with contextlib.suppress(Gone):
            for message in self.control.read_available():
                if message["type"] == "warning":
                    self._file([message])
                else:
                    self._heard.append(message)

    def _lines(self) -> list[dict[str, Any]]:
        heard, self._heard = self._heard, []
        return heard or self.control.read_available()

    def _file(self, messages: list[dict[str, Any]]) -> None:
        for message in messages:
            kind = message["type"]
            if kind == "error":
                raise from_record(message.get("error") or {})
            if kind == "warning":
                log.warning("%s: %s", self.label, message.get("text"))
                continue
            if kind not in ("why", "stats", "seeked"):
                raise garbage(f"a line of type {kind!r} in the middle of a session")
            self._answers[kind] = message

    def _answer(self, kind: str, doing: str, timeout: float | None = None) -> dict[str, Any]:
        watch = _Watch(self, doing, timeout)
        while kind not in self._answers:
            self._look(watch.look())
        return self._answers.pop(kind)

    def _expect(
        self, kind: str, doing: str, on_progress: Callable[[dict[str, Any]], None] | None = None
    ) -> dict[str, Any]:
        watch = _Watch(self, doing)
        while True:
            messages = self.control.receive(watch.look()) or []
            for at, message in enumerate(messages):
                if message["type"] == "error":
                    raise from_record(message.get("error") or {})
                if message["type"] == kind:
                    self._file(messages[at + 1 :])  # an error may have come with it
                    return message
                if message["type"] == "why":
                    self._file([message])
                elif message["type"] != "progress":
                    raise garbage(f"a line of type {message['type']!r} where {kind!r} was due")
                else:
                    watch = _Watch(self, doing)
                    if on_progress is not None:
                        on_progress(message)


class _Watch:
    """A wait for the agent: asks it why, warns with its answer, gives up at the timeout."""

    def __init__(self, connection: Connection, doing: str, timeout: float | None = None) -> None:
        self._connection = connection
        self._doing = doing
        self._timeout = connection.timeout if timeout is None else timeout
        self._began = time.monotonic()
        self._warn_at = _WARN_AT[0]
        self._asked: float | None = None
        self._pulse = _PULSE

    def look(self) -> float:
        """How long to sleep before the next look, in seconds. Raises ATH_TIMEOUT; Gone when nobody is there."""
        connection, timeout = self._connection, self._timeout
        elapsed = time.monotonic() - self._began
        answers = connection._answers
        if elapsed >= self._pulse:
            self._pulse = elapsed + _PULSE
            if _spawn.is_dead(connection.control.socket):
                raise Gone("the agent was killed; a call on its storage hangs and keeps its sockets open")
        if self._asked is not None and ("why" in answers or elapsed - self._asked > _ANSWER_WAIT):
            why = answers.pop("why", {}).get("text", "the agent does not answer")
            if elapsed >= timeout:
                raise AthanorError(
                    "ATH_TIMEOUT",
                    f"{connection.label}, {self._doing}, got nothing from the agent "
                    f"(pid {_spawn.peer_pid(connection.control.socket)}, {connection.path}) for {timeout:.0f} s: {why}",
                    remedy="see to the storage that is named, or give the loader a larger timeout",
                )
            log.warning("%s has waited %.0f s, %s: %s", connection.label, elapsed, self._doing, why)
            self._asked = None
            self._warn_at = _WARN_AT[1] if elapsed < _WARN_AT[1] else (elapsed // 60.0 + 1.0) * 60.0
        if self._asked is None and elapsed >= min(self._warn_at, timeout):
            answers.pop("why", None)
            connection.control.send({"type": "why"})
            self._asked = elapsed
        until = min(self._warn_at, timeout) if self._asked is None else self._asked + _ANSWER_WAIT
        return max(0.001, min(until, self._pulse) - elapsed)


def opened(segment: Segment | None) -> Segment:
    if segment is None:
        raise RuntimeError("the connection has no segment yet: call attach() first")
    return segment
