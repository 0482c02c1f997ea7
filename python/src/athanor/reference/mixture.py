"""Weights and turns of a mixture (docs/reference/order.md, "Mixtures and segments": Weights, Schedule).

>>> whole_weights([0.7, 0.2, 0.1])
[45875, 13107, 6554]
>>> turns = Turns((45875, 13107, 6554))
>>> turns.source(0), turns.count(0, 10)
(0, 7)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from ..errors import error
from .chance import I64

PERIOD = 65536


def whole_weights(weights: Sequence[float]) -> list[int]:
    """To whole numbers of sum 65536; those of weight 0 stay 0. Raises ATH_ORDER_OPTION for one that would get 0."""
    total = 0.0
    for weight in weights:
        total += weight
    if not total > 0:
        raise error("ATH_ORDER_OPTION", "the weights of a mixture are all 0")
    exact = [weight * PERIOD / total for weight in weights]
    whole = [int(x) for x in exact]
    fractions = sorted((i for i, x in enumerate(exact) if x > 0), key=lambda i: (whole[i] - exact[i], i))
    for i in fractions[: PERIOD - sum(whole)]:
        whole[i] += 1
    for i, (weight, given) in enumerate(zip(weights, whole)):
        if weight > 0 and given == 0:
            raise error(
                "ATH_ORDER_OPTION",
                f"the weight of source {i} is too small: {weight} of {total}, at least 1 of {PERIOD} is needed",
                remedy="raise it, or leave the source out with weight 0",
            )
    return whole


class Turns:
    """The schedule s(k) of a mixture: sources by their place in `weights`."""

    def __init__(self, weights: tuple[int, ...]) -> None:
        self._weights = weights
        self._period = _Period.of(weights)

    def source(self, k: int) -> int:
        return int(self._period.upto(k % PERIOD + 1)[0][k % PERIOD])

    def count(self, source: int, k: I64 | int) -> I64:
        """How often a source comes in s(0) … s(k − 1)."""
        periods, rest = np.divmod(np.asarray(k, np.int64), PERIOD)
        counts = self._period.upto(int(rest.max()))[1][source]
        return np.asarray(periods * self._weights[source] + counts[rest])


class _Period:
    """Tijdeman's chairman assignment: the turns of one period, worked out as far as they are asked for."""

    def __init__(self, weights: tuple[int, ...]) -> None:
        self._weights = weights
        self._made = self._arrays([])

    @staticmethod
    @lru_cache(maxsize=64)
    def of(weights: tuple[int, ...]) -> _Period:
        return _Period(weights)

    def upto(self, k: int) -> tuple[I64, list[I64]]:
        """The first k turns (or more), and of each source its count before each of them."""
        # Loaders of several threads share a period: what one of them has seen is never changed, only replaced as a
        # whole. No lock: a process that forks while another thread holds one would wait for ever.
        made = self._made
        have = len(made[0])
        if k > have:
            made = self._made = self._arrays(self._extended(made, min(PERIOD, max(k, 2 * have, 1024))))
        return made

    def _extended(self, made: tuple[I64, list[I64]], k: int) -> list[int]:
        weights, counts = self._weights, [int(count[-1]) for count in made[1]]
        turns: list[int] = made[0].tolist()
        n = len(weights)
        for step in range(len(turns), k):
            best = 0 if n == 1 else -1
            most = 0
            for i, weight in enumerate(weights if n > 1 else ()):
                d = (2 * n - 2) * (weight * (step + 1) - PERIOD * counts[i])
                if d < PERIOD:
                    continue
                left = (2 * n - 3) * PERIOD - d
                # left / weight < most / weights[best], in whole numbers
                if best < 0 or left * weights[best] < most * weight:
                    best, most = i, left
            turns.append(best)
            counts[best] += 1
        return turns

    def _arrays(self, found: list[int]) -> tuple[I64, list[I64]]:
        turns = np.array(found, np.int64)
        zero = np.zeros(1, np.int64)
        return turns, [np.concatenate([zero, np.cumsum(turns == i)]) for i in range(len(self._weights))]
