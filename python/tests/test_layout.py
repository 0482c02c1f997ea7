from __future__ import annotations

import json

from athanor import _layout
from conftest import ROOT


def test_copy_is_the_agents_layout() -> None:
    agent = json.loads((ROOT / "src/agent/layout.json").read_text())
    client = json.loads((ROOT / "python/src/athanor/_layout.json").read_text())
    assert client == agent


def test_words_the_hot_path_reads_are_neighbours() -> None:
    """_connection.take reads position, rows + flags, and truncated + replaced as words 1, 3 and 4 of a slot."""
    slot = _layout.SLOT
    assert (slot["seq"], slot["position"], slot["rows"], slot["flags"], slot["truncated"]) == (0, 8, 24, 28, 32)
    assert slot["replaced"] == 36
    assert _layout.IDENTITY_BYTES == 32
