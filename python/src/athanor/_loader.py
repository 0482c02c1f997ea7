"""The loader: epochs, state and proof over one session. `athanor.torch.Loader` and `athanor.numpy.Loader` are this
class with their own kind of memory.

`for batch in loader` gives the steps of one epoch. A `break` and a new `iter()` start that epoch anew; after the last
step the loader stands at the next epoch. State counts batches that were handed out. Not thread-safe.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from . import _arguments, _evaluation, _mesh, _rundir, _state
from ._batches import GlobalBatch, batch_sizes
from ._columns import Array, Factory
from ._epochs import Epochs, say_if_steps_change
from ._identities import Identities
from ._mix import Mix, mix_of
from ._quarantine import quarantine_request
from ._request import Request, order_request
from ._session import AnySession, session_for
from ._slices import SPLITS, Slices
from ._steps import Steps
from ._text import Padding, tokenizer_request

Batch = dict[str, Any]

GIB = 1024**3


def numpy_factory(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[Any, Array]:
    array = np.empty(shape, dtype)
    return array, array


class Loader:
    """Batches of this rank, in the one order of (data, seed, options), whatever the world size.

    `for batch in loader` gives one epoch. A `break` and a new `for` start that epoch again from its beginning (call
    `set_epoch`, or keep one `repeat()` iterator, to go on); a finished epoch is followed by the next.

    Args:
        source: folder, glob or file. Or, in place of it:
        mix: several sources with weights, by phase: path of a data-mix file (YAML or JSON), or the same as a dict.
        batch_size, global_batch_size, grad_accum: rows of one batch; samples of one optimizer step over all ranks;
            batches a rank gives for it. Two fix the third; `batch_size` alone means grad_accum 1. global_batch_size may
            be a ramp: [(0, 256), (2_000_000, 1024)].
        rampup_batch_size: Megatron's (start, increment, samples) of a ramp up to global_batch_size.
        max_length: values of a feature in a row; longer ones are cut, shorter ones padded. Default 512.
        columns: features to deliver. Default: all numeric ones, and `attention_mask`.
        pad_id: value of padding. Default 0; with a tokenizer its padding token.
        tokenizer: path of a tokenizer.json or model folder: makes ids of text. docs/guides/text.md has the next seven.
        shuffle: "window" (default), "global" (small random reads) or "none".
        shuffle_memory: bytes of all shuffle windows of the job. Default 1 GiB. Part of the order.
        lanes, window: override the order's own, if `athanor plan` says so.
        unit: "extent" (default) or "shard": what is permuted.
        seed: one a job. Default 0.
        last: "carry" (default), "drop" (= drop_last=True) or "pad" (evaluation: adds the column `valid`).
        rank, world_size, local_rank: of this process; default: torch.distributed, the launcher, else one process. Each
            is a data-parallel rank, unless one of the next three says otherwise.
        mesh: the job's torch DeviceMesh with named dimensions (dp, or dp_replicate and dp_shard; tp, cp, pp), or
            `{"dp": (rank, size), "tp": (rank, size), …}`. Processes with one dp rank get the same rows.
        dp_rank, dp_world_size; dp_group: where only these are known.
        cp_rank, cp_size: instead of a mesh with cp: context-parallel ranks get slices of each row.
        cp_split: "zigzag" (default: equal work under causal attention) or "contiguous".
        deliver: False where rows are not needed (middle pipeline stages): batches are `{}`, nothing is read.
        job: name of the job on this node; default from the environment.
        index_dir: of the index when the data is read-only.
        strict: one longer than max_length is an error.
        sample_rule: how tokens become samples (Megatron: "document" or "stream"). Default: the format's own.
        on_corrupt: "raise" (default), or "replace": another record of the shard stands in for a bad one.
        on_io_error: the same for blocks that storage cannot read. Default "raise".
        corrupt_quota: most distinct records that may be replaced in a run, over resumes too. Default 100.
        ledger_dir: where replaced records are written down. Default: proof_dir; one of them is needed to replace.
        proof_dir: writes `RANK-START.jsonl` there: sums of what was handed out, for `athanor state verify`.
        transform: called with each batch; its result is handed out.
        timeout: seconds without a batch until ATH_TIMEOUT. Default 540, under torch's watchdog.
        agent: "auto" (start one if there is none), "external", or "none": no daemon, each rank reads for itself, in
            plain Python and slowly. Default: ATHANOR_AGENT, else "auto".
        state: what `state_dict()` returned, to go on from there.
        identities: adds `_position`, `_shard_key` (its 64 bits), `_record` and `_source` (a number), one int64 a row.

    Raises ValueError for wrong arguments, AthanorError for everything else (docs/reference/errors.md).
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | None = None,
        *,
        mix: str | os.PathLike[str] | Mapping[str, Any] | Mix | None = None,
        batch_size: int | None = None,
        global_batch_size: GlobalBatch | None = None,
        grad_accum: int | None = None,
        rampup_batch_size: Sequence[int] | None = None,
        max_length: int = 512,
        columns: Sequence[str] | None = None,
        pad_id: int | None = None,
        tokenizer: str | os.PathLike[str] | None = None,
        text_column: str | None = None,
        truncation_side: str = "right",
        add_special_tokens: bool | str = True,
        parse_special: bool = False,
        padding: str = "max_length",
        pad_to_multiple_of: int | None = None,
        shuffle: str = "window",
        shuffle_memory: int = GIB,
        lanes: int | None = None,
        window: int | None = None,
        unit: str = "extent",
        seed: int = 0,
        last: str = "carry",
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        local_rank: int | None = None,
        mesh: Any = None,
        dp_rank: int | None = None,
        dp_world_size: int | None = None,
        dp_group: Any = None,
        cp_rank: int | None = None,
        cp_size: int | None = None,
        cp_split: str = "zigzag",
        deliver: bool = True,
        job: str | None = None,
        index_dir: str | os.PathLike[str] | None = None,
        strict: bool = False,
        sample_rule: str | None = None,
        on_corrupt: str = "raise",
        on_io_error: str = "raise",
        corrupt_quota: int = 100,
        ledger_dir: str | os.PathLike[str] | None = None,
        proof_dir: str | os.PathLike[str] | None = None,
        transform: Callable[[Batch], Any] | None = None,
        timeout: float = 540.0,
        agent: str | None = None,
        state: _state.State | None = None,
        identities: bool = False,
        _stride: int = 1,
        _offset: int = 0,
        _place: _mesh.Place | None = None,
        _rests: bool = False,
    ) -> None:
        mode = _arguments.agent_mode(agent)
        _arguments.refuse_unusable(columns, transform)
        _arguments.flags(drop_last=drop_last, deliver=deliver, strict=strict, identities=identities)
        _arguments.one_of("cp_split", cp_split, SPLITS)
        place = _place or _mesh.find(
            rank,
            world_size,
            local_rank,
            dp_rank=dp_rank,
            dp_world_size=dp_world_size,
            dp_group=dp_group,
            mesh=mesh,
            cp_rank=cp_rank,
            cp_size=cp_size,
        )
        ranks = place.ranks
        sizes = batch_sizes(ranks.world, batch_size, global_batch_size, grad_accum, rampup_batch_size)
        order = order_request(
            sizes, mix is not None, seed, shuffle, shuffle_memory, lanes, window, unit, last, drop_last
        )
        mixed = None if mix is None else mix_of(mix)
        text = tokenizer_request(tokenizer, mode, text_column, truncation_side, add_special_tokens, parse_special)
        self._padding = Padding(padding, pad_to_multiple_of, max_length, place.cp_size)
        self.rank = ranks.rank
        self.world_size = ranks.world
        self.batch_size = sizes.batch_size
        self.last = str(order["last"])
        self._implicit_global_batch = global_batch_size is None and grad_accum is None
        self._transform = transform
        self._delivers = deliver
        proof = place.proof_folder(proof_dir)
        self._identities = Identities(identities, self.last == "pad", proof, ranks.rank, ranks.world, mix is not None)
        self._stride = _stride
        self._offset = _offset
        self._rests = _rests
        self._place = place
        self._cp_split = cp_split
        self._request = Request(
            ranks=ranks,
            here=place.here,
            builds=place.builds,
            job=_rundir.job_id({"ATHANOR_JOB_ID": job} if job else None),
            agent=mode,
            mode="stream",
            view=_arguments.view_request(
                source, mixed, index_dir, columns, max_length, pad_id, strict, sample_rule, text
            ),
            mix=None if mixed is None else mixed.request(max_length),
            order=order,
            batch_size=sizes.batch_size,
            slices=Slices(max_length, place.cp_rank, place.cp_size, cp_split),
            timeout=_arguments.positive("timeout", timeout),
            stride=_stride,
            offset=_offset,
            quarantine=quarantine_request(on_corrupt, on_io_error, corrupt_quota, ledger_dir, proof_dir),
            light=not deliver,
        )
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

    def eval(self, source: str | os.PathLike[str], *, batch_size: int | None = None, **options: Any) -> Loader:
        """A loader that gives every sample of `source` once, in file order, each time it is iterated; options that are
        not given are this one's (see `_evaluation`)."""
        return _evaluation.loader_of(self, source, batch_size, options)

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

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        # Sockets and shared memory stay with the process that made them.
        return {**self.__dict__, "_session": None}

    # -- how

    def _factory(self) -> Factory:
        return numpy_factory

    def _opened(self, override: bool = False) -> Epochs:
        """Epochs of the view; opens the session when that is not known yet."""
        epochs = self._epochs
        if epochs is not None:
            return epochs
        view = self._live().view(self._state, override)
        epochs = Epochs.of_view(view, self.world_size * self.batch_size)
        self._identities.refuse_taken([str(column["name"]) for column in view["columns"]])
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
        self._session = session_for(self._request, self._factory(), self._identities.wanted)
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
