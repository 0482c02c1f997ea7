"""A rank's session: connects, survives the death of the agent, and goes on from its own position.

If the agent dies, the next use starts another one (or waits for it), with a new segment, from the position that the
user has reached: a pause, nothing lost, nothing repeated. Three deaths within a minute without a batch between them
are ATH_AGENT_DIED. A session belongs to the process that made it: a forked child opens its own.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, Union

from . import _layout as layout
from . import _rundir, _spawn, _state
from ._columns import Column, Factory
from ._connection import Connection, Taken
from ._control import Gone
from ._request import Request
from ._segment import Segment
from .errors import AthanorError

if TYPE_CHECKING:
    from .reference.session import DirectSession

log = logging.getLogger("athanor")
T = TypeVar("T")
# Makes a connection of (socket, path of the agent's socket, timeout, label).
Connects = Callable[[socket.socket, str, float, str], Connection]

_DEATHS = 3
_DEATHS_WITHIN = 60.0
# Eight batches of read-ahead hide any wake-up; large batches get fewer, so that a rank's segment stays small.
_SLOTS = 8
_SEGMENT_BYTES = 256 * 1024 * 1024


class Session:
    def __init__(self, request: Request, factory: Factory, identities: bool, connects: Connects | None = None) -> None:
        self.request = request
        self._connects = connects or Connection
        self.pid = os.getpid()
        self.truncated = 0
        self.replaced = 0
        self.deaths = 0
        self.copy_ns = 0  # time in copies, the rest of next() is waiting
        self._factory = factory
        self._identities = identities
        self._connection: Connection | None = None
        self._view: dict[str, Any] | None = None
        self._cursor: int | None = None  # where the stream's next step begins; None: not known
        self._recent: list[float] = []
        self._warned: set[str] = set()
        self._finalizer: weakref.finalize[Any, Any] | None = None
        self._run_dir = ""

    # -- what others use

    def view(self, state: _state.State | None, override: bool = False) -> dict[str, Any]:
        """The agent's answer to the hello: samples, columns, order, state. Opens the session at `state` if need be."""
        if self._view is None:
            self._until_it_answers(lambda: self._open(state, override))
        if self._view is None:
            raise RuntimeError("the session is not open")
        return self._view

    def start(self, position: int, state: _state.State) -> None:
        """The next step begins at `position`. `state` is the order's state, used if the session has to be opened."""
        if self._connection is not None and self._cursor == position and self.request.stride == 1:
            return
        self._until_it_answers(lambda: self._start(position, state))

    def next(self, expect: int, state: _state.State) -> Taken:
        """The batch at position `expect`."""
        while True:
            try:
                connection = self._connection
                if connection is None:
                    # Offsets count from where a session starts: step `offset` of it is the one wanted.
                    step = self.request.ranks.world * self.request.batch_size
                    connection = self._start(expect - self.request.offset * step, state)
                connection.asked()
                taken = connection.take(self._factory, expect, self.request.batch_size, self._identities)
                self.truncated += taken.truncated
                self.replaced += taken.replaced
                self.copy_ns += connection.last_copy_ns
                break
            except BaseException as error:
                if not self._goes_on_after(error):
                    raise
        if self._recent:
            self._recent.clear()
        return taken

    def delivered(self, position: int) -> None:
        """A batch goes to the user; the stream goes on at `position`."""
        self._cursor = position
        if self._connection is not None and self.request.stride == 1:
            try:
                self._connection.hand_out(self._factory, position, self.request.batch_size, self._identities)
            except BaseException:  # ^C between two halves of what is kept of a batch under way
                self._drop(polite=False)
                raise

    def get(self, indices: list[int]) -> dict[str, Any]:
        """Mode "random": samples by number in file order, at most batch_size."""

        def take() -> dict[str, Any]:
            connection = self._connection
            if connection is None:
                connection = self._open(None, False)
            connection.control.send({"type": "get", "indices": indices})
            taken = connection.take(self._factory, None, len(indices), False)
            self.truncated += taken.truncated
            self.replaced += taken.replaced
            return taken.batch

        batch = self._until_it_answers(take)
        self._recent.clear()
        return batch

    def agent_stats(self) -> dict[str, Any]:
        """The agent's own counters; empty while no agent is connected."""
        if self._connection is None:
            return {}
        try:
            return self._connection.stats()
        except Gone:
            self._drop(polite=False)
            return {}

    def hang_up(self) -> None:
        """Lets go of the agent; the next batch is asked for anew."""
        self._drop(polite=False)

    def close(self) -> None:
        """Idempotent; in a forked child it lets go of the parent's descriptors without a word to the agent."""
        self._drop(polite=self.pid == os.getpid())

    # -- how

    def _start(self, position: int, state: _state.State) -> Connection:
        connection = self._connection
        if connection is None:
            # In front of where the order was settled the agent would settle it anew, with changes at once.
            at = max(position, _state.position_of(state)) if state else position
            connection = self._open(_state.at(state, at) if state else None, False)
            if state:
                _state.refuse_other(state, connection.view["state"])
        if self._cursor != position or (self.request.stride != 1 and connection.next_seq > 1):
            connection.seek(position)
            self._cursor = position
        return connection

    def _until_it_answers(self, action: Callable[[], T]) -> T:
        while True:
            try:
                return action()
            except BaseException as error:
                if not self._goes_on_after(error):
                    raise

    def _goes_on_after(self, error: BaseException) -> bool:
        """Lets go of the agent. True if it is gone: then another one is to be asked."""
        # ^C in the middle of a copy or a line: the connection is in no known state.
        self._drop(polite=isinstance(error, AthanorError))
        if not isinstance(error, Gone):
            return False
        self._count_death(error)
        return True

    def _count_death(self, gone: Gone) -> None:
        now = time.monotonic()
        self.deaths += 1
        self._recent = [moment for moment in self._recent if now - moment < _DEATHS_WITHIN] + [now]
        tail = _spawn.log_tail(self._run_dir)
        if len(self._recent) >= _DEATHS:
            raise AthanorError(
                "ATH_AGENT_DIED",
                f"the agent died {_DEATHS} times within a minute without a batch ({gone}); end of its log:\n{tail}",
                file=os.path.join(self._run_dir, "agent.log"),
                remedy="the log names the block in work; check that file with `athanor verify`",
            ) from gone
        log.warning(
            "rank %d: the agent is gone (%s); going on with %s one",
            self.request.ranks.rank,
            gone,
            "a new" if self.request.agent == "auto" else "the next",
        )
        # A killed agent with gigabytes to give back still takes connections for a moment: those are no deaths.
        time.sleep(0.05 if len(self._recent) == 1 else 0.5)

    def _open(self, state: _state.State | None, override: bool) -> Connection:
        request = self.request
        self._run_dir = _rundir.run_dir(request.job)
        try:
            connection = self._connect(state, override, named=False)
        except AthanorError as error:
            # Another pid namespace, or one without /proc: a file in the run directory can still be shared.
            if error.code != "ATH_SEGMENT_REFUSED":
                raise
            log.info("rank %d: %s; trying a named segment", request.ranks.rank, error)
            connection = self._connect(state, override, named=True)
        self._connection = connection
        self._finalizer = weakref.finalize(self, _finish, connection, self.pid)
        view = connection.view
        self._cursor = int(view["position"])
        self._view = view
        for text in view.get("warnings", []):
            if request.ranks.local_rank == 0 and text not in self._warned:
                self._warned.add(text)
                log.warning("%s", text)
        return connection

    def _connect(self, state: _state.State | None, override: bool, named: bool) -> Connection:
        request = self.request
        ranks = request.ranks
        peer = _spawn.connect(self._run_dir, request.job, request.agent, request.timeout)
        connection = self._connects(
            peer, os.path.join(self._run_dir, "agent.sock"), request.timeout, f"rank {ranks.rank}"
        )
        try:
            view = connection.hello(
                {
                    "type": "hello",
                    "protocol": layout.PROTOCOL,
                    "version": _version(),
                    "job": request.job,
                    "rank": ranks.rank,
                    "world": ranks.world,
                    "local_rank": ranks.local_rank,
                    "here": list(request.here),
                    "pid": os.getpid(),
                    "mode": request.mode,
                    "view": request.view,
                    "mix": request.mix,
                    "order": request.order,
                    "batch_size": request.batch_size,
                    "state": state,
                    "override": override,
                    "build_index": request.builds,
                    "stride": request.stride,
                    "offset": request.offset,
                    "quarantine": request.quarantine,
                },
                _Progress(ranks.local_rank == 0),
            )
            if request.light:
                return connection
            columns, slot_bytes = _columns(view, request)
            slots = max(2, min(_SLOTS, _SEGMENT_BYTES // slot_bytes))
            segment = Segment.named(self._run_dir, slots, slot_bytes) if named else Segment.anonymous(slots, slot_bytes)
            connection.attach(segment, columns, request.batch_size)
            return connection
        except BaseException:
            connection.close(polite=False)
            raise

    def _drop(self, polite: bool) -> None:
        connection, self._connection = self._connection, None
        self._cursor = None
        if self._finalizer is not None:
            self._finalizer.detach()
            self._finalizer = None
        if connection is not None:
            connection.close(polite)


AnySession = Union[Session, "DirectSession"]


def session_for(request: Request, factory: Factory, identities: bool, connects: Connects | None = None) -> AnySession:
    """A session with the agent, or with agent="none" one that reads the data itself."""
    if request.agent != "none":
        return Session(request, factory, identities, connects)
    from .reference.session import DirectSession

    return DirectSession(request, factory, identities)


def _columns(view: dict[str, Any], request: Request) -> tuple[list[Column], int]:
    specs = view.get("columns")
    slot_bytes = view.get("slot_bytes")
    if not isinstance(specs, list) or not isinstance(slot_bytes, int) or slot_bytes < 128 or slot_bytes % 64 != 0:
        raise AthanorError(
            "ATH_PROTOCOL",
            f"the agent described slots that this client cannot read: {slot_bytes!r}",
            remedy="install the same version of agent and client",
        )
    return [Column(spec, slot_bytes, request.batch_size, request.slices) for spec in specs], slot_bytes


class _Progress:
    """Building an index may take minutes: one line on stderr each 5 s, from one rank of the node."""

    def __init__(self, speak: bool) -> None:
        self._speak = speak
        self._next = time.monotonic() + 1.0

    def __call__(self, message: dict[str, Any]) -> None:
        now = time.monotonic()
        if self._speak and now >= self._next:
            self._next = now + 5.0
            print(
                f"athanor: {message.get('stage')}: {message.get('done')} of {message.get('total')}",
                file=sys.stderr,
                flush=True,
            )


def _finish(connection: Connection, pid: int) -> None:
    """At the end of the session object or of the interpreter."""
    connection.close(polite=pid == os.getpid())


def _version() -> str:
    from . import __version__

    return __version__
