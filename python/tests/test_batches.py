from __future__ import annotations

import pytest

from athanor._arguments import size
from athanor._batches import batch_sizes, megatron_ramp


def test_two_sizes_fix_the_third() -> None:
    assert batch_sizes(8, batch_size=4)[:3] == (4, 1, 32)
    assert batch_sizes(8, batch_size=4, grad_accum=2)[:3] == (4, 2, 64)
    assert batch_sizes(8, batch_size=4, global_batch_size=64)[:3] == (4, 2, 64)
    assert batch_sizes(8, global_batch_size=64, grad_accum=2)[:3] == (4, 2, 64)
    assert batch_sizes(8, global_batch_size=64)[:3] == (8, 1, 64)
    assert batch_sizes(8, 4, 64, 2)[:3] == (4, 2, 64)


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
        ({"batch_size": 2, "global_batch_size": "256"}, "global_batch_size must be a whole number, or a ramp"),
        ({"batch_size": 2, "global_batch_size": []}, "a ramp of .*, got \\[\\]"),
        ({"batch_size": 2, "global_batch_size": [256, 512]}, "a ramp of"),
        ({"batch_size": 2, "global_batch_size": [(1, 16)]}, "must begin at 0 samples, got 1"),
        ({"batch_size": 2, "global_batch_size": [(0, 16), (0, 32)]}, "must ascend in samples, got 0 behind 0"),
        ({"batch_size": 2, "global_batch_size": [(0, 16), (9, 0)]}, "size in entry 1 .* at least 1, got 0"),
        ({"batch_size": 2, "global_batch_size": [(0, 16), (1.5, 32)]}, "got 1.5 samples in entry 1"),
        ({"batch_size": 2, "global_batch_size": [(0, 16), (9, 40)]}, "multiples of .*, got 40 from sample 9 on"),
        ({"global_batch_size": [(0, 16), (9, 32)]}, "batch_size must be given with a ramp"),
        ({"batch_size": 2, "grad_accum": 1, "global_batch_size": [(0, 16), (9, 32)]}, "grad_accum must be left out"),
        ({"batch_size": 2, "global_batch_size": 64, "rampup_batch_size": (32, 32)}, "rampup_batch_size must be .start"),
        ({"batch_size": 2, "global_batch_size": 64, "rampup_batch_size": (16, 32, 9)}, "whole increments, got 32"),
        ({"batch_size": 2, "rampup_batch_size": (16, 16, 9)}, "the end of the ramp"),
        ({"batch_size": 2, "global_batch_size": 16, "rampup_batch_size": (16, 16, 9)}, "the first below"),
    ],
)
def test_wrong_sizes_are_value_errors(arguments: dict[str, int], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        batch_sizes(8, **arguments)


def test_ramps_are_lists_or_megatrons() -> None:
    sizes = batch_sizes(8, batch_size=4, global_batch_size=[[0, 64], [1000, 128]])
    assert sizes == (4, 2, 64, ((0, 64), (1000, 128)))
    assert batch_sizes(8, batch_size=4, global_batch_size=[(0, 64)]) == batch_sizes(8, batch_size=4, grad_accum=2)
    # A run that has left the first entry may have a world that it does not divide.
    assert batch_sizes(8, batch_size=16, global_batch_size=[(0, 64), (1000, 128)]).ramp == sizes.ramp
    assert batch_sizes(8, 4, 128, rampup_batch_size=("32", "32", "1000")).ramp == (
        (0, 32), (334, 64), (667, 96), (1000, 128))  # fmt: skip


def test_megatrons_ramp_has_its_sizes_at_every_count() -> None:
    for start, increment, samples, end in ((32, 32, 1000, 128), (16, 8, 77, 256), (1, 1, 5, 6)):
        ramp = megatron_ramp((start, increment, samples), end)
        for consumed in range(samples + 2):
            # megatron/core/num_microbatches_calculator.py, RampupBatchsizeNumMicroBatchesCalculator; it divides floats,
            # which may lose an exact multiple.
            steps = consumed * ((end - start) // increment) // samples
            theirs = end if consumed > samples else start + steps * increment
            assert theirs == [size for begin, size in ramp if begin <= consumed][-1]


@pytest.mark.parametrize(
    ("value", "there"), [(4096, 4096), ("4096", 4096), ("16MiB", 1 << 24), (" 16 m", 1 << 24), ("1.5GB", 1_500_000_000)]
)
def test_shuffle_memory_is_bytes_or_a_size_as_commands_take_it(value: int | str, there: int) -> None:
    assert size("shuffle_memory", value) == there


@pytest.mark.parametrize("value", ["", "16 MiBs", "-1", "many", "0", 0, 1.5])
def test_a_wrong_size_is_a_value_error(value: int | str) -> None:
    with pytest.raises(ValueError, match="shuffle_memory must be"):
        size("shuffle_memory", value)
