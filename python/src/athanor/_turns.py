"""Which epoch each iteration of an `AthanorDataset` gives, over DataLoader workers that come and go.

A *turn* is one `iter()` of the data set in one process; it begins with its first batch. Workers count alone: all get
the same calls. What must outlive them lies in memory that they share with the training process, because a DataLoader
makes new workers for each epoch, and a StatefulDataLoader loads a state in workers only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from . import _state

if TYPE_CHECKING:
    from .torch import AthanorDataset

Batch = dict[str, Any]

# Workers of one data set that can be told apart; DataLoader users have far fewer.
MAX_WORKERS = 1024
# A state is some hundred bytes a source and a segment.
_STATE_BYTES = 256 * 1024


class Turns:
    """Row 0: epoch that set_epoch named (-1: never), number of its calls. Row 1 + w: calls that worker w has seen,
    epoch of its next turn + 1 (0: not known), turns ever."""

    def __init__(self) -> None:
        self._rows = torch.zeros((1 + MAX_WORKERS, 3), dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]
        self._state = torch.zeros(_STATE_BYTES, dtype=torch.uint8).share_memory_()  # type: ignore[no-untyped-call]
        self.clear()

    def clear(self) -> None:
        self._rows.zero_()
        self._rows[0, 0] = -1
        self._state[:4] = 0

    def name(self, epoch: int) -> None:
        """The next turn of every worker is this epoch."""
        self._rows[0, 0] = epoch
        self._rows[0, 1] += 1

    def next(self, worker: int, first: int) -> int:
        """The epoch of a worker's next turn; `first`: that in which this run began."""
        named, calls = int(self._rows[0, 0]), int(self._rows[0, 1])
        seen, following = int(self._rows[1 + worker, 0]), int(self._rows[1 + worker, 1])
        if seen != calls:
            return named
        return following - 1 if following > 0 else first

    def begin(self, worker: int, first: int, resumed: int | None) -> tuple[int, bool]:
        """Begins a turn: its epoch (`resumed`, if it is the rest of one), and whether it is the worker's first ever."""
        row = self._rows[1 + worker]
        epoch = self.next(worker, first) if resumed is None else resumed
        row[0] = self._rows[0, 1]
        row[1] = epoch + 2
        row[2] += 1
        return epoch, int(row[2]) == 1

    def forget(self, worker: int) -> None:
        """The worker starts anew from a state, which rules over an epoch named before."""
        self._rows[1 + worker] = torch.tensor([int(self._rows[0, 1]), 0, 0])

    def expect(self, worker: int, epoch: int) -> None:
        """The worker's next turn gives this epoch."""
        self._rows[1 + worker, 1] = epoch + 1

    def carry(self, state: _state.State) -> None:
        """A worker has loaded this state: later workers walk the same order."""
        data = json.dumps(state).encode()
        if len(data) > _STATE_BYTES - 4:
            raise ValueError(f"state must be at most {_STATE_BYTES - 4} bytes of JSON, got {len(data)}")
        self._state[4 : 4 + len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        self._state[:4] = torch.frombuffer(bytearray(len(data).to_bytes(4, "little")), dtype=torch.uint8)

    def carried(self) -> _state.State | None:
        length = int.from_bytes(bytes(self._state[:4].tolist()), "little")
        if length == 0:
            return None
        state: _state.State = json.loads(bytes(self._state[4 : 4 + length].tolist()))
        return state


class Turn:
    """One iteration. Its own state is only asked for by StatefulDataLoader, which keeps it beside that of the data set:
    it tells an epoch whose last batch was just given from one that is over."""

    def __init__(self, dataset: AthanorDataset, worker: int, workers: int) -> None:
        self._dataset = dataset
        self._worker = worker
        self._workers = workers
        self._steps: Iterator[Batch] | None = None
        self._epoch: int | None = None
        self._over = False

    def __iter__(self) -> Turn:
        return self

    def __next__(self) -> Batch:
        if self._over:
            raise StopIteration
        try:
            return next(self._begun())
        except StopIteration:
            self._over = True
            raise

    def _begun(self) -> Iterator[Batch]:
        if self._steps is None:
            self._steps, self._epoch = self._dataset._begin_turn(self._worker, self._workers, self._epoch)
        return self._steps

    def state_dict(self) -> dict[str, Any]:
        if not self._over:
            self._begun()
        loader = self._dataset._loader_of(self._worker, self._workers)
        epoch = self._epoch
        return {
            "epoch": epoch,
            "over": self._over,
            "end": None if epoch is None else loader._opened().begin(epoch + 1),
            "step": self._dataset._step,
            "workers": self._workers,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Directly after the data set has loaded its own."""
        now = {"step": self._dataset._step, "workers": self._workers}
        then = {name: state[name] for name in now}
        if then != now:
            raise ValueError(
                "num_workers and world size × batch size must be those of the state, "
                f"{then['workers']} and {then['step']}, got {self._workers} and {now['step']}; write "
                "AthanorDataset(…, state=athanor.torch.state_of(state)) and load nothing into the StatefulDataLoader"
            )
        loader = self._dataset._loader_of(self._worker, self._workers)
        epoch, present = state["epoch"], loader.epoch
        mine, present_order = self._dataset._options["state"], loader._order_state()
        if self._workers > 1 and not _state.goes_by(mine, present_order):
            # Each worker would begin the new segment from its own position.
            raise ValueError(
                "batch sizes, weights and data must be those of the state with num_workers above 1, "
                f"got {_state.news(mine, present_order)}; write "
                "AthanorDataset(…, state=athanor.torch.state_of(state)) and load nothing into the StatefulDataLoader"
            )
        # Of an epoch that this worker has given all of, nothing is left, though others may still have batches.
        if state["over"] or (epoch is not None and present > epoch):
            self._over = True
            self._epoch = epoch
            self._dataset._turns.expect(self._worker, present)
        else:
            self._epoch = epoch
