"""The emulated accelerator: a training step that only takes time, and measures how long it really took.

A plain sleep is late by 0.05 … 1 ms (timer slack and the scheduler), so the step sleeps to 0.2 ms before its end and
spins on the clock for the rest; what counts as compute time is what the clock says, not the nominal time.
"""

from __future__ import annotations

import time

SPIN_S = 0.0002


def compute(seconds: float) -> float:
    """Occupies this process for `seconds`; returns the seconds it took (≥ `seconds`). 0 or less: no step, 0.0."""
    if seconds <= 0:
        return 0.0
    start = time.perf_counter()
    end = start + seconds
    if seconds > SPIN_S:
        time.sleep(seconds - SPIN_S)
    while True:
        now = time.perf_counter()
        if now >= end:
            return now - start
