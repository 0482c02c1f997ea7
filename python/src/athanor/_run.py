"""A run over one session: epochs, position, state and counters. What a user gives it by name is `_loader`'s.

State counts batches that were handed out. Not thread-safe.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from . import _state
from ._columns import Array, Factory, NumpyFactory
from ._epochs import Epochs, say_if_steps_change
from ._identities import Identities
from ._packed import Packed
from ._request import Request
from ._session import AnySession, Connects, session_for
from ._steps import Steps
from ._text import Padding

Batch = dict[str, Any]
Self = TypeVar("Self", bound="Run")


_numpy = NumpyFactory()


class Run:
    """`implicit_global_batch`: the user named no optimizer batch. `rests`: gives its session back behind each epoch."""

    def __init__(
        self,
        request: Request,
        identities: Identities,
        padding: Padding,
        packed: Packed,
        transform: Callable[[Batch], Any] | None,
        state: _state.State | None,
        *,
        implicit_global_batch: bool,
        rests: bool,
    ) -> None:
        self.rank = request.ranks.rank
        self.world_size = request.ranks.world
        self.batch_size = request.batch_size
        self.last = str(request.order["last"])
        self._request = request
        self._identities = identities
        self._padding = padding
        self._packed = packed
        self._transform = transform
        self._delivers = not request.light
        self._implicit_global_batch = implicit_global_batch
        self._stride = request.stride
        self._offset = request.offset
        self._rests = rests
        self._session: AnySession | None = None
        self._closed = False
        self._state: _state.State | None = None  # the order's state; its position is not kept up to date
        self._epochs: Epochs | None = None
        self._samples = 0
        self._position = 0
        self._epoch = 0
        self._first_epoch = 0  # the one in which this loader (or its `state`) began
        self._begun_at = 0  # position of the last iter(): what state_dict(steps=) counts from
        self._goes_on = False  # the next iter() continues at _position instead of starting the epoch anew
        self._generation = 0
        self._wanted_epoch: int | None = None  # set_epoch() before the session is open
        self._batches = 0
        self._stall_ns = 0
        self._copy_ns = 0
        self._past_truncated = 0
        self._past_replaced = 0
        self._past_deaths = 0
        if state is not None:
            self._state = _state.checked(state)
            self._position = self._begun_at = _state.position_of(self._state)
            self._goes_on = True

    # -- iteration

    def __iter__(self) -> Iterator[Batch]:
        """The steps of one epoch (after a load: its rest)."""
        self._begin()
        return Steps(self, endless=False)

    def repeat(self) -> Iterator[Batch]:
        """Steps without end, epoch after epoch: for pipeline engines that call next() themselves."""
        self._begin()
        return Steps(self, endless=True)

    def __len__(self) -> int:
        """Steps of the present epoch on this rank, counted from its beginning."""
        self._opened()
        return self._steps_of(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        """Moves to the beginning of an epoch; does nothing when the position already is in it."""
        if not isinstance(epoch, int) or epoch < 0:
            raise ValueError(f"epoch must be a whole number of at least 0, got {epoch!r}")
        if self._epochs is None:
            self._wanted_epoch = epoch
            return
        if epoch != self._epoch:
            self._go_to(epoch)

    @property
    def epoch(self) -> int:
        """The epoch that the next batch belongs to."""
        self._opened()
        return self._epoch

    @property
    def position(self) -> int:
        """Samples delivered globally before the next batch."""
        self._opened()
        return self._position

    @property
    def samples(self) -> int:
        """Samples of the data set; of a mix, of the sources that the next batch is drawn from."""
        self._opened()
        return self._samples

    @property
    def global_batch_size(self) -> int:
        """Samples of the optimizer step that the next batch belongs to."""
        return self._opened().batch_at(self._position)

    @property
    def grad_accum(self) -> int:
        """Batches of this rank in the optimizer step that the next one belongs to."""
        return self.global_batch_size // (self.world_size * self.batch_size)

    @property
    def cp_positions(self) -> Array:
        """Where in the whole row each delivered value of this context-parallel rank stands: its position ids."""
        return self._request.slices.positions

    # -- state

    def state_dict(self, steps: int | None = None) -> _state.State:
        """Where this run stands: small plain JSON, the same on all ranks.

        `steps`: for trainers that read ahead: how many batches since the last iter() or load they have really used."""
        epochs = self._opened()
        position = self._position
        if steps is not None:
            if not isinstance(steps, int) or steps < 0:
                raise ValueError(f"steps must be a whole number of at least 0, got {steps!r}")
            position = epochs.advance(self._begun_at, steps)
            if position > self._position:
                raise ValueError(f"steps must not be more than the batches that were handed out, got {steps}")
        return _state.given_out(self._order_state(), position)

    def load_state_dict(self, state: _state.State, *, override: bool = False) -> None:
        """Goes on where `state` was taken. World size, batch sizes, weights and phases may differ: what is behind the
        position stays as it was, what lies ahead is this loader's, from the next optimizer step on.

        Raises AthanorValueError (a ValueError) for a state of other data or another seed; `override` takes it."""
        state = _state.checked(state)
        position = _state.position_of(state)
        if self._epochs is None or not _state.same_order(state, self._order_state()) or override:
            self._hang_up()
            self._epochs = None
            self._state = state
            self._position = position
            self._opened(override)
        epochs = self._opened()
        self._epoch = epochs.epoch_of(position)
        epochs.steps_left(position, self._epoch)  # refuses a position that this batch size cannot reach
        self._position = self._begun_at = position
        self._wanted_epoch = None
        self._goes_on = True
        self._generation += 1
        self._identities.new_proof()

    # -- the rest

    def stats(self) -> dict[str, Any]:
        """Counters of this rank since it was made, and the agent's own under "agent". Times in seconds.
        "sources": samples that each source of a mix gave."""
        session = self._session
        return {
            "batches": self._batches,
            "samples": self._batches * self.batch_size,
            "position": self._position,
            "epoch": self._epoch,
            "sources": dict(self._identities.delivered),
            "stall_s": self._stall_ns / 1e9,
            "copy_s": self._copy_ns / 1e9,
            "truncated": self._past_truncated + (session.truncated if session is not None else 0),
            "quarantined": self._past_replaced + (session.replaced if session is not None else 0),
            "agent_deaths": self._past_deaths + (session.deaths if session is not None else 0),
            "agent": session.agent_stats() if session is not None and session.pid == os.getpid() else {},
        }

    @property
    def stall_seconds(self) -> float:
        """Time that next() was blocked: waiting for the agent, seeking, starting a new one."""
        return self._stall_ns / 1e9

    def close(self) -> None:
        """Ends the session; idempotent. State can still be taken."""
        self._closed = True
        self._generation += 1
        self._hang_up()
        self._identities.new_proof()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        # Sockets and shared memory stay with the process that made them.
        return {**self.__dict__, "_session": None}

    # -- how

    def _factory(self) -> Factory:
        return _numpy

    def _connects(self) -> Connects | None:
        """How a session connects, if not as `_session` does."""
        return None

    def _arrived(self, batch: Batch) -> Batch:
        """A whole batch as the user gets it."""
        return batch

    def _opened(self, override: bool = False) -> Epochs:
        """Epochs of the view; opens the session when that is not known yet."""
        epochs = self._epochs
        if epochs is not None:
            return epochs
        view = self._live().view(self._state, override)
        epochs = Epochs.of_view(view, self.world_size * self.batch_size)
        self._identities.opened(view)
        if self._state is not None and self._implicit_global_batch:
            say_if_steps_change(self.rank, _state.batch_size_of(self._state), epochs)
        self._samples = int(view["samples"])
        position = int(view["position"])
        self._epoch = self._first_epoch = epochs.epoch_of(position)
        epochs.steps_left(position, self._epoch)  # refuses a position that this batch size cannot reach
        self._state = view["state"]
        self._position = self._begun_at = position
        self._epochs = epochs
        if not self._delivers:
            self._hang_up()
        if self._wanted_epoch is not None:
            wanted, self._wanted_epoch = self._wanted_epoch, None
            self.set_epoch(wanted)
        return epochs

    def _steps_of(self, epoch: int) -> int:
        return len(range(self._offset, self._opened().steps(epoch), self._stride))

    def _go_to(self, epoch: int) -> None:
        position = self._opened().begin(epoch)
        self._epoch = epoch
        self._position = self._begun_at = position
        self._goes_on = False
        self._generation += 1

    def _live(self) -> AnySession:
        """The session of this process; a forked child opens one of its own."""
        if self._closed:
            raise RuntimeError("the loader is closed")
        session = self._session
        if session is not None and session.pid == os.getpid():
            return session
        self._hang_up()
        self._session = session_for(self._request, self._factory(), self._identities.wanted, self._connects())
        return self._session

    def _hang_up(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()
            self._past_truncated += session.truncated
            self._past_replaced += session.replaced
            self._past_deaths += session.deaths

    def _order_state(self) -> _state.State:
        if self._state is None:
            raise RuntimeError("the loader is not open")
        return self._state

    def _begin(self) -> None:
        epochs = self._opened()
        if not self._goes_on:
            self._position = epochs.begin(self._epoch)
        self._goes_on = False
        self._begun_at = self._position
        self._generation += 1
