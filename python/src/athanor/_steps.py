"""Iterator over the steps of a loader. Position, epoch and counters are the loader's; this only walks them."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._run import Run
    from ._session import AnySession

Batch = dict[str, Any]


class Steps:
    """Iterator over the steps of one epoch, or without end. A newer iterator of the same loader ends it."""

    def __init__(self, loader: Run, endless: bool) -> None:
        self._loader = loader
        self._endless = endless
        self._generation = loader._generation
        self._over = False
        self._enter()

    def __iter__(self) -> Steps:
        return self

    def _enter(self) -> None:
        """At the position of the loader: what is left of its epoch."""
        loader = self._loader
        epochs = loader._opened()
        self._epoch = loader._epoch
        self._base = loader._position
        self._left = epochs.steps_left(self._base, self._epoch)
        self._index = loader._offset
        self._size = epochs.step
        self._end = epochs.begin(self._epoch + 1)
        self._session: AnySession | None = None

    def __next__(self) -> Batch:
        if self._over:
            raise StopIteration
        loader = self._loader
        if self._generation != loader._generation:
            raise RuntimeError("this iterator is stale: the loader was closed, moved, or iterated anew")
        while self._index >= self._left:
            self._finish()
            if not self._endless:
                self._over = True
                raise StopIteration
            self._enter()
        # A rank that needs no data walks on by arithmetic alone.
        batch = self._take() if loader._delivers else {}
        loader._batches += 1
        self._index += loader._stride
        if self._index >= self._left:
            self._finish()
        else:
            loader._position = self._base + (self._index - loader._offset) * self._size
        if self._session is not None:
            self._session.delivered(loader._position)
        return batch if loader._transform is None or not loader._delivers else loader._transform(batch)

    def _take(self) -> Batch:
        """The batch of the present step."""
        loader = self._loader
        state = loader._order_state()
        began = time.perf_counter_ns()
        session = self._session
        if session is None or session.pid != os.getpid():
            session = loader._live()
            session.start(self._base + (self._index - loader._offset) * self._size, state)
            self._session = session
        copied = session.copy_ns
        position = self._base + self._index * self._size
        taken = session.next(position, state)
        batch, ids = taken.batch, taken.ids
        try:
            if loader._packed.wanted:
                loader._packed.add(batch, loader._factory())
            copied = session.copy_ns - copied
            loader._copy_ns += copied
            loader._stall_ns += time.perf_counter_ns() - began - copied
            if ids is not None:
                loader._identities.add(batch, loader._factory(), taken.flags, ids, state, position)
            if loader._padding.cuts:
                batch = loader._padding.cut(batch)
            batch = loader._arrived(batch)
        except BaseException:
            # The batch was not handed out, though its slot is given back: it has to be asked for again.
            self._session = None
            session.hang_up()
            raise
        return batch

    def _finish(self) -> None:
        """A finished epoch is the next one's start, even if the user breaks right after its last batch."""
        self._loader._epoch = self._epoch + 1
        self._loader._position = self._end
        if self._loader._rests and not self._endless:
            self._loader._hang_up()
