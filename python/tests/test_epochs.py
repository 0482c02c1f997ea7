from __future__ import annotations

import random

import pytest

from athanor import AthanorError
from athanor._epochs import Epochs


@pytest.mark.parametrize("last", ["carry", "drop", "pad"])
def test_epochs_tile_the_positions(last: str) -> None:
    chance = random.Random(3)
    for _ in range(300):
        step = chance.randint(1, 9)
        group = step * chance.randint(1, 4)
        samples = chance.randint(group if last == "drop" else 1, 400)
        start = group * chance.randint(0, 3)
        epochs = Epochs.of_one(samples, group, step, last, start)
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
        Epochs.of_one(100, 64, 48, "carry").steps_left(0, 0)
    assert caught.value.code == "ATH_BATCH_ARITHMETIC"
    with pytest.raises(AthanorError, match=r"position 4 lies inside a step of 8"):
        Epochs.of_one(100, 16, 8, "carry").steps_left(4, 0)
    with pytest.raises(AthanorError, match=r"leaves nothing of 10"):
        Epochs.of_one(10, 16, 8, "drop")


def test_only_optimizer_batches_from_here_on_count() -> None:
    # 12 until 60, then 32: a step of 16 can go on from 60, not from before it.
    epochs = Epochs([(0, 0, 0, 100)], [(0, 12), (60, 32)], 16, "carry")
    with pytest.raises(AthanorError, match=r"step of 16.* of 12 samples .* from position 0 on"):
        epochs.steps_left(48, 0)
    assert epochs.steps_left(60, 0) == 4
    assert (epochs.batch_at(59), epochs.batch_at(60)) == (12, 32)
    with pytest.raises(AthanorError, match=r"of 24 samples .* from position 64 on"):
        Epochs([(0, 0, 0, 100)], [(0, 16), (64, 24)], 16, "carry").steps_left(0, 0)


def test_epochs_over_spans_and_batches_are_those_of_counting() -> None:
    chance = random.Random(8)
    for _ in range(300):
        step = chance.randint(1, 6)
        spans, batches = [], []
        at, samples, size = 0, chance.randint(5, 90), step * chance.randint(1, 4)
        done, epoch = 0, 0  # by counting position by position: samples of `epoch` that are done at `at`
        begins = {0: 0}
        borders = {0}
        due: list[int] = []
        for number in range(4):
            if number:
                samples, size = chance.randint(5, 90), step * chance.randint(1, 4)
                done = min(done, samples)
            spans.append((at, epoch, done, samples))
            batches.append((at, size))
            for _ in range(chance.randint(1, 9)):
                for _ in range(size):
                    # Epochs that are over begin their next at the first border at or after here.
                    while done >= samples:
                        epoch, done = epoch + 1, done - samples
                        due.append(epoch)
                    if at in borders:
                        begins.update((over, at) for over in due)
                        due = []
                    done += 1
                    at += 1
                borders.add(at)
        epochs = Epochs(spans, batches, step, "carry")
        assert begins == {e: epochs.begin(e) for e in begins}
        for position in range(at):
            assert epochs.epoch_of(position) == max(e for e, b in begins.items() if b <= position)
        for position in sorted(borders - {at}):
            e = epochs.epoch_of(position)
            if epochs.begin(e + 1) <= at:
                assert epochs.steps_left(position, e) * step == epochs.begin(e + 1) - position
