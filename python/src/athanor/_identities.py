"""What a loader makes of the identities of rows: columns (`_position` …, `valid`), counts by source, and the proof."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from . import _layout, _state
from ._columns import Factory
from ._proof import ProofFile
from .errors import AthanorValueError

_COLUMNS = (("_position", 0), ("_shard_key", 1), ("_record", 2))
# The last word: token | valid << 32 | source << 33.
_VALID = np.uint64(1 << 32)
_SOURCE_SHIFT = np.uint64(33)


class Identities:
    """`columns`: `_position`, `_shard_key`, `_record` and `_source`; `padded`: `valid`; `proof_dir`: the proof;
    `mixed`: samples are counted by source."""

    def __init__(
        self, columns: bool, padded: bool, proof_dir: str | None, rank: int, world: int, mixed: bool = False
    ) -> None:
        self._columns = columns
        self._padded = padded
        self._proof_dir = proof_dir
        self._rank = rank
        self._world = world
        self._mixed = mixed
        self._data: dict[str, str] = {}  # fingerprints of the data, by those of its views
        self._pieces: dict[str, dict[str, Any]] = {}  # of views that split or pack, what their rows are made of
        self.delivered: dict[str, int] = {}  # samples by source, of a mix
        self._proof: ProofFile | None = None

    @property
    def wanted(self) -> bool:
        """Must they be copied out of the slots?"""
        return self._columns or self._padded or self._mixed or self._proof_dir is not None

    def opened(self, view: dict[str, Any]) -> None:
        """`view`: what the session answered. Refuses columns of the data that those made here would overwrite."""
        columns = {str(column["name"]) for column in view["columns"]}
        named = list(zip(view["state"]["sources"], view["sources"]))
        self._data = {str(entry["view"]): str(source["data"]) for entry, source in named if source.get("data")}
        self._pieces = {str(entry["view"]): source["pieces"] for entry, source in named if source.get("pieces")}
        own = ["_source", *(name for name, _ in _COLUMNS)] if self._columns else []
        own += ["valid"] if self._padded else []
        taken = sorted(set(own) & columns)
        if taken:
            raise AthanorValueError(
                "ATH_COLUMN_UNKNOWN",
                f"columns must not hold {', '.join(taken)}, which the loader adds itself",
                remedy="name the others with columns=, or give those fields of the data other names",
            )

    def add(
        self,
        batch: dict[str, Any],
        factory: Factory,
        flags: int,
        ids: np.ndarray[Any, np.dtype[np.uint64]],
        state: _state.State,
        position: int,
    ) -> None:
        """The columns of a batch ([rows, 4] u64 are its identities), and the step's line of proof."""
        if self._columns:
            for name, field in _COLUMNS:
                batch[name], view = factory((len(ids),), np.dtype(np.int64))
                view[:] = ids[:, field].view(np.int64)
            batch["_source"], view = factory((len(ids),), np.dtype(np.int64))
            view[:] = ids[:, 3] >> _SOURCE_SHIFT
        if self._mixed:
            self._count(ids, [str(source["name"]) for source in state["sources"]])
        if self._padded:
            batch["valid"], view = factory((len(ids),), np.dtype(np.bool_))
            view[:] = ids[:, 3] & _VALID != 0 if flags & _layout.FLAG_PADDED else True
        if self._proof_dir is None:
            return
        if self._proof is None or self._proof.pid != os.getpid():
            view_of = str(state["sources"][0]["view"])
            start = _state.at(state, position)
            about = {"data": self._data} | ({"pieces": self._pieces} if self._pieces else {})
            self._proof = ProofFile(self._proof_dir, self._rank, self._world, position, view_of, about, start)
        self._proof.add(position, ids)

    def _count(self, ids: np.ndarray[Any, np.dtype[np.uint64]], names: list[str]) -> None:
        counts = np.bincount((ids[:, 3] >> _SOURCE_SHIFT).astype(np.int64), minlength=len(names))
        for name, count in zip(names, counts.tolist()):
            self.delivered[name] = self.delivered.get(name, 0) + count

    def new_proof(self) -> None:
        """The next line goes to a file of its own."""
        if self._proof is not None:
            self._proof.close()
            self._proof = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_proof": None}
