from __future__ import annotations

import random

import pytest

from athanor import AthanorError
from athanor._epochs import Epochs, batch_sizes


def test_two_sizes_fix_the_third() -> None:
    assert batch_sizes(8, batch_size=4) == (4, 1, 32)
    assert batch_sizes(8, batch_size=4, grad_accum=2) == (4, 2, 64)
    assert batch_sizes(8, batch_size=4, global_batch_size=64) == (4, 2, 64)
    assert batch_sizes(8, global_batch_size=64, grad_accum=2) == (4, 2, 64)
    assert batch_sizes(8, global_batch_size=64) == (8, 1, 64)
    assert batch_sizes(8, 4, 64, 2) == (4, 2, 64)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"batch_size": 4, "global_batch_size": 50},
            "multiple of world_size × batch_size = 8 × 4, got 50; nearest: 32 or 64",
        ),
        ({"global_batch_size": 6}, "got 6; nearest: 8"),
        ({"batch_size": 4, "global_batch_size": 64, "grad_accum": 3}, "8 × 4 × 3 = 96, got 64; leave one"),
        ({}, "batch_size must be given"),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1, got 0"),
        ({"batch_size": 2, "global_batch_size": [(0, 256)]}, "global_batch_size must be a whole number"),
    ],
)
def test_wrong_sizes_are_value_errors(arguments: dict[str, int], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        batch_sizes(8, **arguments)


@pytest.mark.parametrize("last", ["carry", "drop", "pad"])
def test_epochs_tile_the_positions(last: str) -> None:
    chance = random.Random(3)
    for _ in range(300):
        step = chance.randint(1, 9)
        group = step * chance.randint(1, 4)
        samples = chance.randint(group if last == "drop" else 1, 400)
        start = group * chance.randint(0, 3)
        epochs = Epochs(samples, group, step, last, start)
        assert epochs.begin(0) == start
        position = start
        for epoch in range(5):
            assert epochs.begin(epoch) == position
            steps = epochs.steps(epoch)
            for left in range(steps, 0, -1):
                assert epochs.epoch_of(position) == epoch
                assert epochs.steps_left(position, epoch) == left
                position = epochs.advance(position, 1)
            assert epochs.advance(start, sum(epochs.steps(e) for e in range(epoch + 1))) == position


def test_a_step_that_does_not_divide_is_refused() -> None:
    with pytest.raises(AthanorError, match=r"step of 48 samples.*optimizer batch of 64") as caught:
        Epochs(100, 64, 48, "carry")
    assert caught.value.code == "ATH_BATCH_ARITHMETIC"
    with pytest.raises(AthanorError, match=r"position 4 lies inside a step of 8"):
        Epochs(100, 16, 8, "carry").steps_left(4, 0)
    with pytest.raises(AthanorError, match=r"leaves nothing of 10"):
        Epochs(10, 16, 8, "drop")
