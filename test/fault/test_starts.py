"""Processes of one job that start on more shards than an agent keeps open; at full size `npm run test:starts`."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
import starts

CLIENTS, SHARDS = 6, 240
DESCRIPTORS = 600  # of which an agent keeps 88 for shards

pytestmark = pytest.mark.skipif(starts.missing() is not None, reason=f"skipped: no strace ({starts.missing()})")


def test_clients_ask_next_to_nothing_and_a_shard_is_opened_once_an_epoch() -> None:
    base = Path(tempfile.mkdtemp(prefix="ath-", dir="/tmp"))
    try:
        found = starts.run(base, CLIENTS, SHARDS, DESCRIPTORS)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    assert starts.verdict(found) == [], found
    # It does see what is asked: the agent lists three folders, and each shard and its block table are opened.
    assert found["first"]["of all, besides opens and index"] >= 3 and found["first"]["index"] > SHARDS
    assert found["second"]["opens"] > 0
