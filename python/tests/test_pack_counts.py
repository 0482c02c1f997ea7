"""Counts of tokens of a view that splits or packs: the command that makes them, who waits, when they are made anew."""

from __future__ import annotations

import json
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import views
from athanor import AthanorError
from athanor.numpy import Loader
from athanor.reference.crc import crc32c
from conftest import athanor
from packed_sets import MAX, blocks_of, documents, expected, packed_rows, write_jsonl

pytestmark = pytest.mark.usefixtures("run_dir")


def test_other_nodes_wait_for_the_counts(tmp_path: Path) -> None:
    records = documents(100)
    data = write_jsonl(tmp_path / "data", [records])
    assert athanor("index", data).returncode == 0
    options = {"batch_size": 1, "max_length": MAX, "sample_rule": "pack", "shuffle": "none", "last": "pad"}
    # Rank 1 is alone on its node: it makes nothing itself.
    loader = Loader(str(data), rank=1, world_size=2, local_rank=0, **options)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(loader.samples))
    thread.start()
    time.sleep(3)
    assert thread.is_alive()
    assert not (data / ".athanor" / "views").exists()
    first = athanor("index", data, "--view", "--max-length", MAX, "--sample-rule", "pack", "--json")
    thread.join(30)
    loader.close()
    assert found == [json.loads(first.stdout)["rows"]]


def test_the_command_counts_once_and_says_what_it_found(tmp_path: Path) -> None:
    records = documents(300)
    data = write_jsonl(tmp_path / "data", [records])
    index = tmp_path / "index"
    flags = ("--max-length", MAX, "--sample-rule", "pack", "--index-dir", index, "--json")
    first = json.loads(athanor("index", data, "--view", *flags).stdout)
    tokens = sum(map(len, records))
    assert (first["records"], first["tokens"], first["counted"], first["rule"]) == (300, tokens, 1, "pack")
    assert first["fill"] == pytest.approx(tokens / (first["rows"] * MAX))
    again = json.loads(athanor("index", data, "--view", *flags).stdout)
    assert again == first | {"counted": 0, "bytes": 0, "seconds": again["seconds"]}
    assert json.loads(athanor("index", data, "--view", "--rebuild", *flags).stdout)["counted"] == 1
    facts = views.view(index / "views" / f"{first['view']}.bin")
    assert facts["rule"] == "pack"
    assert facts["maxLength"] == MAX
    assert facts["countsCrc"] == [crc32c(np.array(block, "<u4").tobytes()) for block in blocks_of(data, index)]
    assert sum(facts["rows"]) == first["rows"]
    assert sum(facts["shardTokens"]) == tokens
    assert not (data / ".athanor").exists()
    with Loader(str(data), batch_size=1, max_length=MAX, sample_rule="pack", index_dir=str(index)) as loader:
        assert loader.samples == first["rows"]
        assert loader.state_dict()["sources"][0]["view"] == first["view"]
    plan = json.loads(athanor("plan", data, *flags).stdout)
    assert plan["data"]["samples"] == first["rows"]
    assert athanor("inspect", data, "--index-dir", index).returncode == 0
    assert athanor("verify", data, "--index-dir", index).returncode == 0
    refused = athanor("index", data, "--view", "--sample-rule", "record", "--index-dir", index)
    assert refused.returncode == 2
    shutil.rmtree(index / "views")
    missing = athanor("plan", data, *flags)
    assert missing.returncode == 1
    assert json.loads(missing.stderr)["error"]["code"] == "ATH_VIEW_MISSING"


def test_a_set_that_changed_is_counted_anew(tmp_path: Path) -> None:
    records = documents(200)
    data = write_jsonl(tmp_path / "data", [records[:100], records[100:]])
    assert packed_rows(data) == expected(data, records, "pack")
    changed = [*records[:100], *([[*ids[::-1], 7] for ids in records[100:]])]
    write_jsonl(data, [changed[:100], changed[100:]])
    with pytest.raises(AthanorError, match="changed since it was indexed"):
        packed_rows(data)
    assert athanor("index", data).returncode == 0
    found = packed_rows(data)
    shutil.rmtree(data / ".athanor")
    assert found == packed_rows(data) == expected(data, changed, "pack")
