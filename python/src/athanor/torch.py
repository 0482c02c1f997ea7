"""The loader with tensors, and its two guises as torch data sets.

>>> from athanor.torch import Loader
>>> loader = Loader("/mnt/lustre/deepseek/data", batch_size=32, max_length=512, seed=1234)   # rank and world from env
>>> for batch in loader:                  # {"input_ids": int64 [32, 512], "attention_mask": int64 [32, 512]}
...     loss = model(**batch).loss
"""

from __future__ import annotations

import logging
import operator
import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from . import _arguments, _loader, _mesh, _ranks, _rundir, _state
from ._columns import Array, Factory
from ._epochs import Epochs
from ._mix import mix_of
from ._quarantine import quarantine_request
from ._request import Request
from ._session import AnySession, session_for
from ._slices import Slices

__all__ = ["AthanorDataset", "DeepSeekDataset", "Loader", "state_of"]

log = logging.getLogger("athanor")
Batch = dict[str, Any]

_TORCH = {np.dtype(np.int64): torch.int64, np.dtype(np.float32): torch.float32, np.dtype(np.bool_): torch.bool}
# Workers of one AthanorDataset that can be told apart; DataLoader users have far fewer.
_MAX_WORKERS = 1024
# Samples in one request of the map-style data set.
_GET_ROWS = 64
# Looking at a few samples is no training loop.
_MANY_JUMPS = 32


def _plain(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[Any, Array]:
    tensor = torch.empty(shape, dtype=_TORCH[dtype])
    return tensor, tensor.numpy()


def _pinned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[Any, Array]:
    # Pinned, so that `.to(device, non_blocking=True)` overlaps with the step; torch caches such memory.
    tensor = torch.empty(shape, dtype=_TORCH[dtype], pin_memory=True)
    return tensor, tensor.numpy()


def _tensor_factory() -> Factory:
    # A DataLoader worker must not touch CUDA; its main process pins.
    return _pinned if get_worker_info() is None and torch.cuda.is_available() else _plain


class Loader(_loader.Loader):
    """`athanor.numpy.Loader` with tensors; pinned when CUDA is there. See that class for arguments."""

    _made: Factory | None = None

    def _factory(self) -> Factory:
        if self._made is None:
            self._made = _tensor_factory()
        return self._made

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_made": None}


class AthanorDataset(IterableDataset[Batch]):
    """Whole batches for `DataLoader(dataset, batch_size=None, num_workers=n)`: worker w takes this rank's batches
    w, w + n, …, so that they come in the order of a plain Loader.

    Arguments are those of Loader. Sessions open in the process that iterates. Each `iter(DataLoader)` is the next
    epoch; `set_epoch(e)` before it reaches persistent workers too (after a `break`, it is how an epoch starts anew)."""

    def __init__(self, source: str | os.PathLike[str] | None = None, **options: Any) -> None:
        super().__init__()
        if options.get("mix") is not None:
            options["mix"] = mix_of(options["mix"])  # a file that is changed later is not read again by a worker
        # Ranks and job are those of the training process; a worker has another parent and maybe no torch.distributed.
        options["_place"] = _mesh.find(**{name: options.pop(name) for name in _mesh.OPTIONS if name in options})
        options["job"] = options.get("job") or _rundir.job_id()
        self._source = source
        self._options = options
        self._loader: Loader | None = None
        self._made_for = (-1, 0, 0)  # pid, worker, workers of _loader
        self._epochs: tuple[Epochs, int] | None = None  # and the epoch in which the run began
        # Memory shared with workers. Row 0: epoch that set_epoch named (-1: never), number of its calls. Row 1 + w:
        # calls that worker w has seen, iterations since then, iterations ever. Each worker counts alone.
        self._shared = torch.zeros((1 + _MAX_WORKERS, 3), dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]
        self._shared[0, 0] = -1
        Loader(source, **options).close()  # wrong arguments fail here and not in a worker

    def __iter__(self) -> Iterator[Batch]:
        _refuse_collation()
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        if workers > _MAX_WORKERS:
            raise ValueError(f"num_workers must be at most {_MAX_WORKERS}, got {workers}")
        if info is not None and self._options.get("proof_dir") is not None:
            raise ValueError(
                "proof_dir must be left out with num_workers above 0 (workers read ahead of the trainer), "
                f"got {self._options['proof_dir']!r}"
            )
        loader = self._loader_of(worker, workers)
        present = loader.epoch
        epoch, goes_on = self._turn(worker, loader._first_epoch)
        if not goes_on or epoch != present:
            loader._go_to(epoch)
        return iter(loader)

    def __len__(self) -> int:
        """Batches of the next epoch on this rank."""
        if self._epochs is None:
            # Not a session that stays: it would hold rows that this process never takes while workers read on.
            with Loader(self._source, **self._options) as probe:
                self._epochs = (probe._opened(), probe._first_epoch)
        epochs, first = self._epochs
        return epochs.steps(self._next_epoch(0, first))

    def set_epoch(self, epoch: int) -> None:
        if not isinstance(epoch, int) or epoch < 0:
            raise ValueError(f"epoch must be a whole number of at least 0, got {epoch!r}")
        self._shared[0, 0] = epoch
        self._shared[0, 1] += 1

    def state_dict(self) -> _state.State:
        """Where the batches of this process end: exact with num_workers=0; `state_of` joins those of workers."""
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        loader = self._loader_of(worker, workers)
        return _state.at(loader.state_dict(), loader.position + worker * loader.world_size * loader.batch_size)

    def load_state_dict(self, state: _state.State) -> None:
        """Goes on from `state`; before the first iteration, in the training process."""
        if get_worker_info() is not None:
            raise RuntimeError("a worker cannot load a state: use AthanorDataset(…, state=state_of(sd))")
        self._options["state"] = _state.checked(state_of(state))
        self._epochs = None
        self.close()
        self._shared.zero_()
        self._shared[0, 0] = -1

    def close(self) -> None:
        if self._loader is not None:
            self._loader.close()
            self._loader = None

    def _loader_of(self, worker: int, workers: int) -> Loader:
        key = (os.getpid(), worker, workers)
        if self._loader is None or self._made_for != key:
            self.close()
            self._loader = Loader(self._source, **self._options, _stride=workers, _offset=worker)
            self._made_for = key
        return self._loader

    def _next_epoch(self, worker: int, first: int) -> int:
        """The epoch of a worker's next iteration; `first`: that in which this run began."""
        named, calls = int(self._shared[0, 0]), int(self._shared[0, 1])
        seen, turns = int(self._shared[1 + worker, 0]), int(self._shared[1 + worker, 1])
        return (named if named >= 0 else first) + (turns if seen == calls else 0)

    def _turn(self, worker: int, first: int) -> tuple[int, bool]:
        """The epoch of this iteration, and whether it is the first ever of this worker (which goes on from `state`)."""
        epoch = self._next_epoch(worker, first)
        row = self._shared[1 + worker]
        calls = int(self._shared[0, 1])
        row[1] = int(row[1]) + 1 if int(row[0]) == calls else 1
        row[0] = calls
        row[2] += 1
        return epoch, int(row[2]) == 1

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loader": None}


class DeepSeekDataset(Dataset[Batch]):
    """Map-style: `dataset[i]` is sample i in file order, `len` is exact; works with DataLoader workers and samplers.

    Each sample is a small read of its own. With a random sampler Loader does the same work with a few large reads."""

    def __init__(
        self,
        data_dir: str | os.PathLike[str],
        tokenizer: Any = None,
        max_length: int = 512,
        *,
        columns: list[str] | None = None,
        pad_id: int | None = None,
        index_dir: str | os.PathLike[str] | None = None,
        strict: bool = False,
        on_corrupt: str = "raise",
        on_io_error: str = "raise",
        corrupt_quota: int = 100,
        ledger_dir: str | os.PathLike[str] | None = None,
        job: str | None = None,
        timeout: float = 540.0,
        agent: str | None = None,
    ) -> None:
        """`tokenizer`: only its `pad_token_id` is used, where `pad_id` is not given; else padding is 0."""
        if pad_id is None:
            given = getattr(tokenizer, "pad_token_id", None)
            pad_id = given if isinstance(given, int) else 0
        ranks = _ranks.resolve()
        self._request = Request(
            ranks=ranks,
            here=(ranks.rank,),
            builds=ranks.rank == ranks.local_rank,
            job=_rundir.job_id({"ATHANOR_JOB_ID": job} if job else None),
            agent=_arguments.agent_mode(agent),
            mode="random",
            view=_arguments.view_request(data_dir, None, index_dir, columns, max_length, pad_id, strict),
            order={
                "seed": "0",
                "shuffle": "none",
                "shuffle_memory": _loader.GIB,
                "lanes": None,
                "window": None,
                "unit": "extent",
                "last": "carry",
                "global_batch": _GET_ROWS * ranks.world,
                "ramp": None,
            },
            batch_size=_GET_ROWS,
            timeout=_arguments.positive("timeout", timeout),
            quarantine=quarantine_request(on_corrupt, on_io_error, corrupt_quota, ledger_dir),
            slices=Slices(max_length, 0, 1, "contiguous"),
        )
        self._session: AnySession | None = None
        self._length: int | None = None
        self._following = 0
        self._jumps = 0
        self._said = False

    def __len__(self) -> int:
        if self._length is None:
            self._length = int(self._live().view(None)["samples"])
        return self._length

    def __getitem__(self, index: int) -> Batch:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: list[int]) -> list[Batch]:
        """Samples in the order asked for; torch's fetcher calls this with a whole batch."""
        size = len(self)
        wanted = []
        for given in indices:
            index = operator.index(given)  # TypeError for 1.5, "a" and slices
            number = index + size if index < 0 else index
            if not 0 <= number < size:
                raise IndexError(f"index must be in {-size}..{size - 1}, got {index}")
            wanted.append(number)
        self._look_at(wanted)
        samples: list[Batch] = []
        session = self._live()
        for start in range(0, len(wanted), _GET_ROWS):
            part = wanted[start : start + _GET_ROWS]
            rows = session.get(part)
            samples += [{name: rows[name][row] for name in rows} for row in range(len(part))]
        return samples

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_session": None}

    def _live(self) -> AnySession:
        if self._session is None or self._session.pid != os.getpid():
            self.close()
            self._session = session_for(self._request, _plain, False)
        return self._session

    def _look_at(self, wanted: list[int]) -> None:
        """Says once what jumping about costs."""
        if self._said or not wanted:
            return
        info = get_worker_info()
        run = wanted == list(range(wanted[0], wanted[0] + len(wanted)))
        if not run or wanted[0] not in (0, self._following):
            self._jumps += len(wanted)
        self._following = wanted[-1] + 1
        if self._jumps >= _MANY_JUMPS:
            self._said = True
            if info is None or info.id == 0:
                log.warning(
                    "samples are read in random order: one small read each, %d an epoch; "
                    "athanor.torch.Loader(%r, batch_size=…) gives shuffled batches from large reads",
                    len(self),
                    self._request.view["source"],
                )


def state_of(state: Any) -> _state.State:
    """The elastic state inside what `Loader.state_dict()`, `AthanorDataset.state_dict()` or a StatefulDataLoader over
    it returned: good for any world size. Of several workers' states the earliest counts: that is the next batch."""
    found = list(_states_in(state))
    if not found:
        raise ValueError(f"state must hold the state of an Athanor loader, got {type(state).__name__} without one")
    first = min(found, key=_state.position_of)
    if any(not _state.same_order(first, other) for other in found):
        raise ValueError("state must hold one loader, got states of several orders")
    return first


def _states_in(value: Any) -> Iterator[_state.State]:
    if isinstance(value, dict):
        if {"version", "seed", "sources", "segments", "position"} <= value.keys():
            yield _state.checked(value)
        else:
            for inner in value.values():
                yield from _states_in(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _states_in(inner)


def _refuse_collation() -> None:
    """DataLoader(batch_size=n) would pile up n whole batches. Nothing tells the data set of it, save the fetcher that
    is calling: its constructor's argument `auto_collation` (torch 1.2 to 2.15)."""
    frame = sys._getframe(1)
    for _ in range(12):
        caller = frame.f_back
        if caller is None:
            return
        frame = caller
        if frame.f_code.co_name == "__init__" and frame.f_locals.get("auto_collation") is True:
            raise ValueError(
                "batch_size of DataLoader must be None, the data set gives whole batches; write "
                "DataLoader(AthanorDataset(source, batch_size=B), batch_size=None, num_workers=n)"
            )
