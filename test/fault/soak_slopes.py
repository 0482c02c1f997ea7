"""Is a number that was sampled over time going up for good? Least squares, and what makes a slope count.

A slope counts when all of these hold: it is above its limit an hour; it is four times its standard error, taken over
the means of blocks (neighbouring samples are not independent); the rise over the time looked at is above what a heap
moves by itself; and both halves rise, so that a step (a cache that fills, a buffer that grows once) is none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

BLOCKS = 24


@dataclass(frozen=True)
class Limit:
    per_hour: float
    floor: float  # a rise of less over the whole time is never a leak
    unit: str


@dataclass(frozen=True)
class Slope:
    per_hour: float
    error: float  # standard error, an hour
    rise: float  # over the time looked at
    halves: tuple[float, float]  # slopes of the first and the second half, an hour
    first: float
    last: float

    def counts(self, limit: Limit) -> bool:
        return (
            self.per_hour > limit.per_hour
            and self.per_hour > 4 * self.error
            and self.rise > limit.floor
            and min(self.halves) > limit.per_hour / 2
        )


def slope(seconds: list[float], values: list[float]) -> Slope:
    """Of at least four samples."""
    times, numbers = np.array(seconds) / 3600, np.array(values, float)
    blocks = min(BLOCKS, len(times))
    x = np.array([part.mean() for part in np.array_split(times, blocks)])
    y = np.array([part.mean() for part in np.array_split(numbers, blocks)])
    rate, error = _line(x, y)
    half = blocks // 2
    ends = max(1, blocks // 8)
    return Slope(
        per_hour=rate,
        error=error,
        rise=rate * float(times[-1] - times[0]),
        halves=(_line(x[:half], y[:half])[0], _line(x[half:], y[half:])[0]),
        first=float(y[:ends].mean()),
        last=float(y[-ends:].mean()),
    )


def _line(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Rate of the best line, and its standard error."""
    dx = x - x.mean()
    square = float((dx * dx).sum())
    rate = float((dx * (y - y.mean())).sum()) / square
    rest = y - y.mean() - rate * dx
    return rate, (float((rest * rest).sum()) / max(1, len(x) - 2) / square) ** 0.5
