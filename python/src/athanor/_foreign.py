"""Who iterates an `AthanorDataset`, where that would go wrong: refused with the line to write.

Each rank already gets its own part, in whole batches. accelerate and the Trainer of transformers deal out what they
are given once more, collate it once more, and skip it once more on resume. Nothing tells a data set of that, save the
frames that are calling.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType

from .errors import AthanorValueError

_SHARDS = {
    ("accelerate.data_loader", "DataLoaderShard"),
    ("accelerate.data_loader", "DataLoaderDispatcher"),
    ("accelerate.data_loader", "IterableDatasetShard"),
    ("transformers.trainer_pt_utils", "IterableDatasetShard"),
}
_SKIP = ("accelerate.data_loader", "SkipDataLoader")
_TRAINER = ("transformers.trainer", "Trainer")

_FOR_TRAINER = (
    "write trainer = athanor.torch.for_trainer(Trainer(model=model, args=args), Loader(source, "
    "batch_size=args.per_device_train_batch_size, grad_accum=args.gradient_accumulation_steps))"
)
_FOR_ACCELERATE = (
    "leave it out of accelerator.prepare(): write model, optimizer = accelerator.prepare(model, optimizer) and iterate "
    "athanor.torch.Loader(source, batch_size=B), moving each batch to accelerator.device"
)
_INSTEAD_OF_SKIP = (
    "leave skip_first_batches out where a state was loaded: loader.load_state_dict(state) is the whole resume"
)


def refuse(resumed: bool) -> None:
    """Raises ATH_SHARDED_TWICE or ATH_SKIPPED_TWICE. `resumed`: the data set goes on from a state."""
    found: set[tuple[str, str]] = set()
    skips = collates = False
    for frame in _callers():
        owner = frame.f_locals.get("self")
        if owner is not None:
            # Not owner.__class__: accelerate's loaders say that they are DataLoaders.
            names = {(cls.__module__, cls.__name__) for cls in type(owner).__mro__}
            found |= names
            skips = skips or (_SKIP in names and getattr(owner, "skip_batches", 0) > 0)
        # The fetcher's constructor, in torch 1.2 to 2.15: DataLoader(batch_size=n) would pile up n whole batches.
        collates = collates or (frame.f_code.co_name == "__init__" and frame.f_locals.get("auto_collation") is True)
    shards = not found.isdisjoint(_SHARDS)
    if (shards or collates) and _TRAINER in found:
        raise AthanorValueError(
            "ATH_SHARDED_TWICE",
            "transformers' Trainer shards, batches and skips by itself, this data set gives the rank's own batches",
            remedy=_FOR_TRAINER,
        )
    if shards:
        raise AthanorValueError(
            "ATH_SHARDED_TWICE",
            "accelerate would deal out this rank's own batches to all ranks again",
            remedy=_FOR_ACCELERATE,
        )
    if skips and resumed:
        raise AthanorValueError(
            "ATH_SKIPPED_TWICE",
            "accelerate would skip batches of a data set that already goes on from its state",
            remedy=_INSTEAD_OF_SKIP,
        )
    if collates:
        raise ValueError(
            "batch_size of DataLoader must be None, the data set gives whole batches; write "
            "DataLoader(AthanorDataset(source, batch_size=B), batch_size=None, num_workers=n)"
        )


def _callers() -> Iterator[FrameType]:
    """Also those of the training process, in a worker that was forked from it."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        yield frame
        frame = frame.f_back
