"""The loader with tensors, and its two guises as torch data sets.

>>> from athanor.torch import Loader
>>> loader = Loader("/mnt/lustre/deepseek/data", batch_size=32, max_length=512, seed=1234)   # rank and world from env
>>> for batch in loader:                  # {"input_ids": int64 [32, 512], "attention_mask": int64 [32, 512]}
...     loss = model(**batch).loss
"""

from __future__ import annotations

import functools
import logging
import operator
import os
from collections.abc import Iterator
from typing import Any, TypeVar

import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from . import _arguments, _foreign, _loader, _mesh, _ranks, _rundir, _state
from ._columns import Factory
from ._cuda import Cuda
from ._device import Device, put
from ._elastic import state_of
from ._epochs import Epochs
from ._mix import mix_of
from ._packed import DOCUMENTS
from ._quarantine import quarantine_request
from ._request import Request
from ._sending import DeviceConnection
from ._session import AnySession, Connects, session_for
from ._slices import Slices
from ._tensors import PINNED, PLAIN
from ._text import tokenizer_request
from ._turns import MAX_WORKERS, Turn, Turns

__all__ = ["AthanorDataset", "DeepSeekDataset", "Loader", "for_trainer", "state_of"]

log = logging.getLogger("athanor")
Batch = dict[str, Any]
Trainer = TypeVar("Trainer")

# Samples in one request of the map-style data set.
_GET_ROWS = 64
# Looking at a few samples is no training loop.
_MANY_JUMPS = 32


def _tensor_factory() -> Factory:
    # A DataLoader worker must not touch CUDA; its main process pins.
    return PINNED if get_worker_info() is None and torch.cuda.is_available() else PLAIN


def _open_device(device: torch.device) -> Device:
    if get_worker_info() is not None:
        raise ValueError(
            f"device must be left out in a DataLoader's worker, which must not use CUDA, got {str(device)!r}: "
            "iterate the Loader itself, it sends batches ahead without workers"
        )
    return Cuda(device)


class Loader(_loader.Loader):
    """`athanor.numpy.Loader` with tensors; pinned when CUDA is there, with `device=` on that GPU. See that class for
    arguments."""

    _made: Factory | None = None
    _opened_device: Device | None = None
    _opened_by = -1

    def _factory(self) -> Factory:
        if self._made is None:
            self._made = _tensor_factory()
        return self._made

    def _checked_device(self, device: Any) -> Any:
        if device is None:
            return None
        try:
            given = torch.device(device)
        except (RuntimeError, TypeError) as error:
            raise ValueError(f'device must be "cuda", "cuda:N" or a torch.device, got {device!r}') from error
        if given.type not in ("cuda", "cpu"):
            raise ValueError(f'device must be "cuda", "cuda:N" or "cpu", got {device!r}')
        return None if given.type == "cpu" else given

    def _live_device(self) -> Device:
        """Opened with the session: whoever only makes a loader, to fork workers say, has not touched CUDA."""
        device = self._opened_device
        if device is None or self._opened_by != os.getpid():
            device = self._opened_device = _open_device(self._device)
            self._opened_by = os.getpid()
        return device

    def _connects(self) -> Connects | None:
        if self._device is None or not self._delivers:
            return None
        kept = {DOCUMENTS} if self._packed.wanted else set()
        kept |= {"attention_mask"} if self._padding.options["padding"] == "longest" else set()
        return functools.partial(DeviceConnection, device=self._live_device(), on_host=frozenset(kept))

    def _arrived(self, batch: Batch) -> Batch:
        return batch if self._device is None else put(self._live_device(), batch)

    @property
    def dataset(self) -> Any:
        """There is none: accelerate's skip_first_batches looks for one."""
        raise AttributeError(
            "a Loader has no `dataset`: in place of skip_first_batches(loader, n) write loader.load_state_dict(state)"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_made": None, "_opened_device": None}


class AthanorDataset(IterableDataset[Batch]):
    """Whole batches for `DataLoader(dataset, batch_size=None, num_workers=n)`: worker w takes this rank's batches
    w, w + n, …, so that they come in the order of a plain Loader.

    Arguments are those of Loader. Sessions open in the process that iterates. Each iteration of the DataLoader is the
    next epoch; `set_epoch(e)` before it reaches persistent workers too (after a `break`, it is how an epoch starts
    anew). A StatefulDataLoader over it resumes exactly with the same num_workers, world size and batch size; `state_of`
    takes the elastic state out of its own."""

    def __init__(self, source: str | os.PathLike[str] | None = None, **options: Any) -> None:
        super().__init__()
        if options.get("mix") is not None:
            options["mix"] = mix_of(options["mix"])  # a file that is changed later is not read again by a worker
        probe = Loader(source, **options)  # wrong arguments fail here and not in a worker
        probe.close()
        # Ranks and job are those of the training process; a worker has another parent and maybe no torch.distributed.
        for name in _mesh.OPTIONS:
            options.pop(name, None)
        options["_place"] = probe._place
        options["job"] = probe._request.job
        options["device"] = probe._device
        self._source = source
        self._options = options
        self._step = probe.world_size * probe.batch_size
        self._loader: Loader | None = None
        self._made_for = (-1, 0, 0)  # pid, worker, workers of _loader
        self._turns = Turns()
        self._loaded_here = False  # options["state"] was loaded in this very worker
        self._from_carried = False  # _loader walks the order of a state that an earlier worker loaded
        self._epochs: tuple[Epochs, int] | None = None  # and the epoch in which the run began
        self._epochs_carried: _state.State | None = None  # what _epochs was made with

    def __iter__(self) -> Iterator[Batch]:
        _foreign.refuse(self._options.get("state") is not None)
        worker, workers = _this_worker()
        if workers > MAX_WORKERS:
            raise ValueError(f"num_workers must be at most {MAX_WORKERS}, got {workers}")
        if get_worker_info() is not None and self._options.get("device") is not None:
            raise ValueError(
                "device must be left out with num_workers above 0 (a worker must not use CUDA), "
                f"got {str(self._options['device'])!r}: iterate a Loader, it sends batches ahead without workers"
            )
        if get_worker_info() is not None and self._options.get("proof_dir") is not None:
            raise ValueError(
                "proof_dir must be left out with num_workers above 0 (workers read ahead of the trainer), "
                f"got {self._options['proof_dir']!r}"
            )
        return Turn(self, worker, workers)

    def __len__(self) -> int:
        """Batches of the next epoch on this rank."""
        carried = self._turns.carried()
        if self._epochs is None or carried != self._epochs_carried:
            # Not a session that stays: it would hold rows that this process never takes while workers read on.
            with Loader(self._source, **{**self._options_with(carried), "device": None}) as probe:
                self._epochs = (probe._opened(), probe._first_epoch)
            self._epochs_carried = carried
        epochs, first = self._epochs
        return epochs.steps(self._turns.next(0, first))

    def set_epoch(self, epoch: int) -> None:
        _foreign.refuse(False)
        if not isinstance(epoch, int) or epoch < 0:
            raise ValueError(f"epoch must be a whole number of at least 0, got {epoch!r}")
        self._turns.name(epoch)

    def state_dict(self) -> _state.State:
        """Where the batches of this process end: exact with num_workers=0; `state_of` joins those of workers."""
        worker, workers = _this_worker()
        loader = self._loader_of(worker, workers)
        return _state.given_out(loader.state_dict(), loader.position + worker * self._step)

    def load_state_dict(self, state: _state.State) -> None:
        """Goes on from `state`; before the first iteration, in the training process (or by StatefulDataLoader)."""
        worker, _ = _this_worker()
        elastic = _state.checked(state_of(state))
        if get_worker_info() is not None:
            elastic = _state.at(elastic, _state.position_of(elastic) - worker * self._step)
            self._turns.carry(elastic)
            self._turns.forget(worker)
            self._loaded_here = True
        else:
            self._turns.clear()
        self._options["state"] = elastic
        self._epochs = None
        self.close()

    def close(self) -> None:
        if self._loader is not None:
            self._loader.close()
            self._loader = None

    def _options_with(self, carried: _state.State | None) -> dict[str, Any]:
        return self._options if carried is None or self._loaded_here else {**self._options, "state": carried}

    def _loader_of(self, worker: int, workers: int) -> Loader:
        key = (os.getpid(), worker, workers)
        if self._loader is None or self._made_for != key:
            self.close()
            carried = self._turns.carried()
            self._from_carried = carried is not None and not self._loaded_here
            self._loader = Loader(self._source, **self._options_with(carried), _stride=workers, _offset=worker)
            self._made_for = key
        return self._loader

    def _begin_turn(self, worker: int, workers: int, resumed: int | None) -> tuple[Iterator[Batch], int]:
        """The batches of a worker's next turn, and its epoch. `resumed`: the epoch that it is the rest of."""
        loader = self._loader_of(worker, workers)
        present = loader.epoch
        epoch, first = self._turns.begin(worker, loader._first_epoch, resumed)
        goes_on = epoch == present and (epoch == resumed or (first and not self._from_carried))
        if not goes_on:
            loader._go_to(epoch)
        return iter(loader), epoch

    def __getstate__(self) -> dict[str, Any]:
        _foreign.refuse(self._options.get("state") is not None)  # spawned workers do not see who made them
        return {**self.__dict__, "_loader": None}


def _this_worker() -> tuple[int, int]:
    """This worker and how many there are; the training process is the only one."""
    info = get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


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
        """`tokenizer`: a path makes ids of text, as for Loader. Of a tokenizer object only its `pad_token_id` is used,
        where `pad_id` is not given; else padding is 0."""
        text = None
        mode = _arguments.agent_mode(agent)
        if isinstance(tokenizer, (str, os.PathLike)):
            text = tokenizer_request(tokenizer, mode, None, "right", True, False)
        elif pad_id is None:
            given = getattr(tokenizer, "pad_token_id", None)
            pad_id = given if isinstance(given, int) else 0
        ranks = _ranks.resolve()
        self._request = Request(
            ranks=ranks,
            here=(ranks.rank,),
            builds=ranks.rank == ranks.local_rank,
            job=_rundir.job_id({"ATHANOR_JOB_ID": job} if job else None),
            agent=mode,
            mode="random",
            view=_arguments.view_request(
                data_dir, None, index_dir, columns, max_length, pad_id, strict, tokenizer=text
            ),
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
            self._session = session_for(self._request, PLAIN, False)
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


def for_trainer(trainer: Trainer, loader: Loader) -> Trainer:
    """Gives transformers' Trainer this loader to train on, made without `train_dataset`:

    >>> loader = Loader(data, batch_size=args.per_device_train_batch_size, grad_accum=args.gradient_accumulation_steps)
    >>> trainer = for_trainer(Trainer(model=model, args=args), loader)
    >>> trainer.train(resume_from_checkpoint=True)       # exactly behind the checkpoint's last batch

    The loader's state lies in `trainer_state.json`. Batches must hold `labels` (`transform=`)."""
    from ._trainer import attach

    return attach(trainer, loader)
