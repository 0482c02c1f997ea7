"""A connection whose batches go to an accelerator (`Loader(device=…)`), which copies them out of shared memory, ahead.

A slot goes back to the agent when its copy is done, not when it is begun; only who has nothing else to do waits for
that. A batch sent ahead is not a batch delivered: positions count when it is handed out.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections import deque
from typing import Any, NamedTuple

from ._columns import Column, Factory
from ._connection import _RELEASED, _U32, _WAKE_AT, Connection, Taken, opened
from ._control import garbage
from ._device import Device, Mark, Sender, Sent
from ._segment import Segment

log = logging.getLogger("athanor")

# One batch that the device copies while it computes on another, and one more for a step that is short.
_AHEAD = 2
# What a forked child must not free: memory of a device that is its parent's alone.
_left: list[Any] = []
_said: set[str] = set()


class _Flight(NamedTuple):
    taken: Taken
    sent: Sent | None  # None: all columns are needed in this process


class _Copy(NamedTuple):
    n: int
    w: int
    copied: Mark | None


class DeviceConnection(Connection):
    """`on_host`: names of columns that are needed in this process, and are sent by the loader later."""

    def __init__(
        self, peer: socket.socket, path: str, timeout: float, label: str, device: Device, on_host: frozenset[str]
    ) -> None:
        super().__init__(peer, path, timeout, label)
        self._device = device
        self._on_host = on_host
        self._sender: Sender | None = None
        self._flights: deque[_Flight] = deque()  # not handed out yet
        self._copies: deque[_Copy] = deque()  # slots that are the agent's when these are done
        self._failed: Exception | None = None

    def attach(self, segment: Segment, columns: list[Column], batch_size: int) -> None:
        super().attach(segment, columns, batch_size)
        self._kept = [column for column in columns if column.name in self._on_host]
        going = [column for column in columns if column.name not in self._on_host]
        self._going = going
        if going:
            self._sender = Sender(self._device, segment, going, batch_size)
            if self._sender.refused is not None:
                _say_once(self.label, segment, self._sender.refused)

    def take(self, factory: Factory, expect: int | None, rows: int, identities: bool) -> Taken:
        """The next batch, which may still be on its way: the stream that works on it now waits for it."""
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed
        self._give_back(wait=False)
        began = time.perf_counter_ns()
        if not self._flights:
            n = self.next_seq
            w = self._slot_words[(n - 1) % opened(self.segment).slots]
            if self._words[w] != n:
                self._give_back(wait=True)  # or whoever fills slots might wait for ours
                self._wait(n, w)
                began = time.perf_counter_ns()
            self._send(n, w, factory, rows, identities)
        flight = self._flights.popleft()
        if flight.taken.position != expect:
            raise garbage(f"a batch with position {flight.taken.position}, expected {expect}")
        if flight.sent is not None:
            self._device.hand_over(flight.sent.ready, flight.sent.batch.values())
        self.last_copy_ns = time.perf_counter_ns() - began
        return flight.taken

    def asked(self) -> None:
        """Nothing is copied by a thread here."""

    def hand_out(self, factory: Factory, expect: int, rows: int, identities: bool) -> None:
        """A batch goes to the trainer now: those behind it that are there set out."""
        try:
            self._give_back(wait=False)
            slots = opened(self.segment).slots
            while len(self._flights) < _AHEAD:
                n = self.next_seq
                w = self._slot_words[(n - 1) % slots]
                if self._words[w] != n:
                    return
                self._send(n, w, factory, rows, identities)
        except Exception as error:
            self._failed = error  # the batch that is handed out now is whole

    def seek(self, position: int) -> None:
        self._failed = None
        self._flights.clear()
        self._give_back(wait=True)
        super().seek(position)

    def close(self, polite: bool) -> None:
        if self._pid != os.getpid():
            _left.append((self._flights, self._copies, self._sender))
            if self._sender is not None:
                self._sender.leave()
        elif self._sender is not None:
            self._flights.clear()
            self._copies.clear()
            # A device that is lost reads nothing any more.
            with contextlib.suppress(RuntimeError):
                self._sender.close()
        self._sender = None
        super().close(polite)

    def _send(self, n: int, w: int, factory: Factory, rows: int, identities: bool) -> None:
        """Batch n, which is there, sets out."""
        segment = opened(self.segment)
        words = self._words
        slot = (n - 1) % segment.slots
        segment.fence()
        position = words[w + 1]
        found_rows, flags = words[w + 3] & _U32, words[w + 3] >> 32
        truncated, replaced = words[w + 4] & _U32, words[w + 4] >> 32
        if found_rows != rows or rows != self._batch_size:
            raise garbage(f"batch {n} of {found_rows} rows, expected {rows}")
        for column in self._going:
            column.check(slot, rows)
        ids = self._identities[slot][:rows].copy() if identities else None
        kept = {column.name: column.take(factory, slot, rows) for column in self._kept}
        sent = self._sender.send(slot) if self._sender is not None else None
        self._copies.append(_Copy(n, w, sent.copied if sent is not None else None))
        self.next_seq = n + 1
        batch = {**kept, **sent.batch} if sent is not None else kept
        batch = {column.name: batch[column.name] for column in self._columns}
        self._flights.append(_Flight(Taken(batch, flags, truncated, ids, position, replaced), sent))

    def _give_back(self, wait: bool) -> None:
        """Slots whose copies are done, in turn. `wait`: all of them, once they are."""
        while self._copies:
            n, w, copied = self._copies[0]
            if copied is not None and not copied.query():
                if not wait:
                    return
                copied.synchronize()
            self._copies.popleft()
            if self._words[w] != n:
                raise garbage(f"batch {self._words[w]} over batch {n} while it was being copied")
            self._words[w + _RELEASED] = n
            opened(self.segment).fence()
            if self._words[_WAKE_AT] <= n:
                self._ring()


def _say_once(label: str, segment: Segment, why: str) -> None:
    if why in _said:
        return
    _said.add(why)
    log.warning(
        "%s: its %d bytes of shared memory cannot be read by the GPU itself (%s): batches are copied to pinned memory "
        "first, which costs the processor some time",
        label,
        segment.size,
        why,
    )
