"""A Loader under the Trainer of transformers: nothing is sharded, batched or skipped a second time.

The Trainer takes the loader as it is (it never goes through accelerate), counts its steps, and keeps the loader's state
in its own `trainer_state.json`: `trainer.train(resume_from_checkpoint=…)` is the whole resume, on other ranks too.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from transformers import TrainerCallback

from . import _state
from ._elastic import state_of

if TYPE_CHECKING:
    from .torch import Loader

T = TypeVar("T")

# In TrainerState.stateful_callbacks, which the Trainer saves and loads with each checkpoint.
KEY = "athanor"


def attach(trainer: T, loader: Loader) -> T:
    given: Any = trainer
    data = TrainerData(loader)

    def get_train_dataloader() -> TrainerData:
        tensor_parallel = given.get_tp_size() if hasattr(given, "get_tp_size") else 1
        data.check(given.args, given.args.world_size // tensor_parallel)
        return data

    given.get_train_dataloader = get_train_dataloader
    # The state is the place to go on at: to read and drop batches up to there would skip them twice.
    given.args.ignore_data_skip = True
    given.add_callback(StateCallback(data))
    return trainer


class TrainerData:
    """What the Trainer iterates. Each of its epochs is `len` batches, and the next one goes on behind them: there is no
    set_epoch, because its count of epochs is its own (ours differ in length by a step)."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader
        self.start = loader.state_dict()
        self.first_epoch = loader.epoch
        self._length = len(loader)
        self._batches: Iterator[Any] | None = None
        self._done = 0  # batches of the Trainer's present epoch that were done before

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Any]:
        if self._batches is None:
            self._batches = self.loader.repeat()
        left, self._done = self._length - self._done, 0
        return islice(self._batches, left)

    def go_on(self, state: _state.State, batches: int) -> None:
        """From `state`, behind `batches` batches of this run."""
        self.loader.load_state_dict(state)
        self._batches = self.loader.repeat()
        self._done = batches % self._length

    def check(self, args: Any, world_size: int) -> None:
        """Raises ValueError where Trainer and loader do not mean the same step."""
        loader = self.loader
        sizes = {batch.size for batch in loader._opened().batches}
        if len(sizes) > 1:
            raise ValueError(f"global_batch_size must be one number under a Trainer, got a ramp over {sorted(sizes)}")
        for name, theirs, ours in (
            ("batch_size", args.train_batch_size, loader.batch_size),
            ("grad_accum", args.gradient_accumulation_steps, loader.grad_accum),
            ("world_size", world_size, loader.world_size),
        ):
            if theirs != ours:
                raise ValueError(f"{name} of the loader must be {theirs}, as the Trainer's arguments say, got {ours}")


class StateCallback(TrainerCallback):
    """Keeps the loader's state with the Trainer's, and moves the loader there when training begins."""

    def __init__(self, data: TrainerData) -> None:
        self._data = data
        self._first_step = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        data = self._data
        saved = state.stateful_callbacks.get(KEY)
        if saved is None and state.global_step > 0 and _state.position_of(data.start) == 0:
            raise ValueError(
                f"the checkpoint of step {state.global_step} must hold the state of a loader, it was written without "
                "one; to go on in the data write loader.load_state_dict(state) before for_trainer (`athanor state "
                "from-consumed` makes a state)"
            )
        self._first_step = state.global_step
        place = data.start if saved is None else state_of(saved)
        data.go_on(place, state.global_step * args.gradient_accumulation_steps)
        epochs = int(args.num_train_epochs)
        if args.max_steps <= 0 and epochs == args.num_train_epochs:
            # The Trainer multiplies the length of one epoch; ours share a step where they meet, and come to fewer.
            end = data.loader._opened().begin(data.first_epoch + epochs)
            steps = (end - _state.position_of(data.start)) // data.loader.global_batch_size
            state.max_steps = min(state.max_steps, steps)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        # By steps that were trained on, however far the Trainer has read ahead.
        steps = (state.global_step - self._first_step) * args.gradient_accumulation_steps
        place = self._data.loader.state_dict(steps=steps)
        state.stateful_callbacks[KEY] = {"args": {}, "attributes": {"loader": place}}
        state.epoch = state.global_step * args.gradient_accumulation_steps / len(self._data)
