"""The loader as a user makes it: arguments by name, checked, become what a run asks for (`_run`).

`athanor.torch.Loader` and `athanor.numpy.Loader` are this class with their own kind of memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import _arguments, _evaluation, _mesh, _rundir, _state
from ._batches import GlobalBatch, batch_sizes
from ._identities import Identities
from ._mix import Mix, mix_of
from ._packed import Packed
from ._quarantine import quarantine_request
from ._request import Request, order_request
from ._run import Batch, Run
from ._slices import SPLITS, Slices
from ._text import Padding, tokenizer_request

GIB = 1024**3


class Loader(Run):
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
        tokenizer: path of a tokenizer.json or model folder: makes ids of text or chats: see docs/guides/text.md.
        shuffle: "window" (default), "global" (small random reads) or "none".
        shuffle_memory: bytes of all shuffle windows of the job, or a size ("16MiB"). Default 1 GiB. Part of the order.
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
        sample_rule: how records become samples. Megatron: "document" or "stream"; text and lists of ids: "record",
            "split" (pieces of max_length) or "pack" (several documents a row: adds `position_ids`, `cu_seqlens`,
            `max_seqlen`). Default: the format's own.
        on_corrupt: "raise" (default), or "replace": another record of the shard stands in for a bad one.
        on_io_error: the same for blocks that storage cannot read. Default "raise".
        corrupt_quota: most distinct records that may be replaced in a run, over resumes too. Default 100.
        ledger_dir: where replaced records are written down. Default: proof_dir; one of them is needed to replace.
        proof_dir: writes `RANK-START.jsonl` there: sums of what was handed out, for `athanor state verify`.
        device: "cuda", "cuda:1" or a torch.device: batches are handed out there, sent ahead while the step before is
            computed (docs/guides/training.md). Only with tensors, and not in a DataLoader's workers.
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
        messages_column: str | None = None,
        tools_column: str | None = None,
        chat_template: str | os.PathLike[str] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        padding: str = "max_length",
        pad_to_multiple_of: int | None = None,
        shuffle: str = "window",
        shuffle_memory: int | str = GIB,
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
        device: Any = None,
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
        self._device = self._checked_device(device)
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
        text = tokenizer_request(
            tokenizer,
            mode,
            text_column,
            truncation_side,
            add_special_tokens,
            parse_special,
            messages_column,
            tools_column,
            chat_template,
            chat_template_kwargs,
        )
        self._place = place
        self._cp_split = cp_split
        request = Request(
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
        proof = place.proof_folder(proof_dir)
        super().__init__(
            request,
            Identities(identities, order["last"] == "pad", proof, ranks.rank, ranks.world, mix is not None),
            Padding(padding, pad_to_multiple_of, max_length, place.cp_size),
            Packed(sample_rule, mode, max_length, padding, place.cp_size),
            transform,
            state,
            implicit_global_batch=global_batch_size is None and grad_accum is None,
            rests=_rests,
        )

    def _checked_device(self, device: Any) -> Any:
        if device is not None:
            raise ValueError(f"device must be left out with numpy arrays, got {device!r}: use athanor.torch.Loader")
        return None

    def eval(self, source: str | os.PathLike[str], *, batch_size: int | None = None, **options: Any) -> Loader:
        """A loader that gives every sample of `source` once, in file order, each time it is iterated; options that are
        not given are this one's (see `_evaluation`)."""
        return _evaluation.loader_of(self, source, batch_size, options)
