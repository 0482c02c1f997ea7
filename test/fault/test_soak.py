"""The soak's judgement can tell a leak from what a heap does, and a minute's soak runs clean."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from soak_slopes import Limit, slope  # noqa: E402

MIB = Limit(8.0, 3.0, "MiB")
HOUR = [float(second) for second in range(0, 3600, 3)]


def test_a_slow_leak_under_noise_counts() -> None:
    noise = np.random.default_rng(1).normal(0, 4, len(HOUR))
    leak = slope(HOUR, list(100 + 12 * np.array(HOUR) / 3600 + noise))
    assert leak.counts(MIB) and 10 < leak.per_hour < 14


def test_a_saw_a_step_and_a_flat_line_do_not_count() -> None:
    seconds = np.array(HOUR)
    noise = np.random.default_rng(2).normal(0, 4, len(HOUR))
    assert not slope(HOUR, list(100 + noise)).counts(MIB)
    assert not slope(HOUR, list(100 + seconds % 240 / 8)).counts(MIB)  # garbage, collected every four minutes
    step = slope(HOUR, list(np.where(seconds < 1700, 100.0, 130.0)))
    assert step.per_hour > MIB.per_hour and not step.counts(MIB)
    settles = slope(HOUR, list(130 - 30 * np.exp(-seconds / 300)))
    assert not settles.counts(MIB)


def test_one_descriptor_every_ten_minutes_counts() -> None:
    one = slope(HOUR, [float(10 + int(second // 600)) for second in HOUR])
    assert one.counts(Limit(2.0, 1.0, ""))


def test_a_short_soak_ends_clean() -> None:
    """Too short for slopes of memory; epochs, visits, deaths and what is left behind are as in the long one."""
    command = [sys.executable, str(HERE / "soak.py"), "--minutes", "0.3", "--every", "0.2", "--pace", "0.01"]
    done = subprocess.run([*command, "--visit-every", "2"], capture_output=True, text=True, timeout=240)
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["faults"] == 0, done.stdout + done.stderr
    assert told["epochs"] >= 1 and told["visits"] >= 3
    assert {one["process"] for one in told["slopes"]} == {"agent", "rank 0", "rank 1", "rank 2"}
    counted = [one for one in told["slopes"] if one["what"] in ("descriptors", "threads") and one["leak"]]
    assert not counted, done.stdout
