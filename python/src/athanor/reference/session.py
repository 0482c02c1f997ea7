"""`Loader(agent="none")`: what `_session.Session` is to a loader, with no agent behind it.

Each rank reads and decodes its own rows in its own process, in plain Python: the same batches, states and proofs, some
hundred times slower. Nothing is started and nothing is written.
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from .. import _layout as layout
from .._columns import Factory
from .._connection import Taken
from .._request import Request
from .._state import State
from .view import Gathered, View


class DirectSession:
    """Same use as `_session.Session`."""

    deaths = 0

    def __init__(self, request: Request, factory: Factory, identities: bool) -> None:
        self.request = request
        self.pid = os.getpid()
        self.truncated = 0
        self.replaced = 0
        self.copy_ns = 0
        self._factory = factory
        self._identities = identities
        self._view: View | None = None

    def view(self, state: State | None, override: bool = False) -> dict[str, Any]:
        """What an agent answers to the hello, as far as a loader reads it."""
        view = self._view
        if view is None:
            request = self.request
            view = self._view = View(request.view, request.order, state, override, request.mix, request.quarantine)
        run, epochs = view.run, view.order.epochs
        segment = [segment for segment in run.segments if segment.start <= view.position][-1]
        weights = dict(zip(segment.sources, segment.weights))
        sources = [
            {
                "name": joined.name,
                "samples": str(joined.samples),
                "weight": weights.get(number, 0),
                "shuffle": joined.how.shuffle,
                "held": view.held(number),
                "lanes": joined.how.lanes,
                "window": joined.how.window,
                "extent": joined.how.extent,
                "data": view.data_of(number),
            }
            for number, joined in enumerate(run.sources)
        ]
        return {
            "samples": str(sum(run.sources[number].samples for number in segment.sources)),
            "columns": [{"name": column.name} for column in view.columns],
            "sources": sources,
            "epochs": {
                "last": epochs.last,
                "spans": [list(span) for span in epochs.spans],
                "batches": [list(batch) for batch in epochs.batches],
            },
            "position": str(view.position),
            "state": view.state(view.position),
        }

    def start(self, position: int, state: State) -> None:
        """Nothing is read ahead, so there is nothing to move."""

    def next(self, expect: int, state: State) -> Taken:
        """The batch at position `expect`."""
        view = self._opened(state)
        view.reach(expect)
        ranks, batch = self.request.ranks, self.request.batch_size
        positions, valid = view.order.deal(expect, ranks.world * batch, ranks.world, ranks.rank)
        # Rows beyond the end of an epoch repeat the last one; a rank that has none gets zeros.
        rows = view.rows(positions[:valid]).padded(positions)
        rows.ids[:valid, 3] |= np.uint64(1 << 32)
        truncated = int(np.count_nonzero(rows.truncated[:valid]))
        replaced = int(np.count_nonzero(rows.replaced[:valid]))
        self.truncated += truncated
        self.replaced += replaced
        flags = layout.FLAG_PADDED if valid < batch else 0
        return Taken(self._deliver(rows), flags, truncated, rows.ids if self._identities else None, expect, replaced)

    def get(self, indices: list[int]) -> dict[str, Any]:
        """Samples by number in file order."""
        rows = self._opened(None).samples(np.array(indices, np.int64))
        self.truncated += int(np.count_nonzero(rows.truncated))
        self.replaced += int(np.count_nonzero(rows.replaced))
        return self._deliver(rows)

    def delivered(self, position: int) -> None:
        """Nothing is read ahead."""

    def agent_stats(self) -> dict[str, Any]:
        return {}

    def hang_up(self) -> None:
        """The next batch is read anew; there is nobody to hang up on."""

    def close(self) -> None:
        if self._view is not None:
            self._view.close()
            self._view = None

    def _opened(self, state: State | None) -> View:
        self.view(state)
        if self._view is None:
            raise RuntimeError("the session is not open")
        return self._view

    def _deliver(self, rows: Gathered) -> dict[str, Any]:
        began = time.perf_counter_ns()
        batch = self._opened(None).deliver(rows, self._factory, self.request.slices)
        self.copy_ns += time.perf_counter_ns() - began
        return batch
