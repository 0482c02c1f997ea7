"""`sample_rule="split"` and `"pack"`: rows of pieces against an independent packer, over orders and world sizes."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import subprocess
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
from athanor.torch import AthanorDataset
from athanor.torch import Loader as TorchLoader
from conftest import ROOT
from format_writer import write_shard

TOKENIZER = ROOT / "test/fixtures/tokenizer/deepseek"
MAX = 48


@pytest.fixture(autouse=True)
def alone(run_dir: Path) -> Path:
    return run_dir


def athanor(*args: object) -> subprocess.CompletedProcess[str]:
    command = ["node", str(ROOT / "dist/src/cli/main.js"), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def documents(count: int, seed: int = 1) -> list[list[int]]:
    """Ids that tell record and place; some are empty, some far longer than a row."""
    draw = random.Random(seed)
    lengths = [int(draw.lognormvariate(2.6, 1.3)) for _ in range(count)]
    return [[1000 * i + k % 1000 for k in range(n)] for i, n in enumerate(lengths)]


def write_jsonl(folder: Path, shards: list[list[list[int]]], ballast: int = 0, packed: bool = False) -> Path:
    folder.mkdir(exist_ok=True)
    for number, records in enumerate(shards):
        lines = [{"input_ids": ids, "labels": [-n for n in ids], "pad": "x" * ballast} for ids in records]
        text = "".join(json.dumps(line) + "\n" for line in lines).encode()
        name = folder / f"{number}.jsonl{'.gz' if packed else ''}"
        name.write_bytes(gzip.compress(text) if packed else text)
    return folder


def blocks_of(data: Path, index: Path | None = None) -> list[list[int]]:
    """Counts of all blocks of the set, in its order, as they are stored."""
    (folder,) = (path for path in ((index or data / ".athanor") / "views").iterdir() if path.is_dir())
    found = sorted((views.counts(file) for file in folder.iterdir()), key=lambda pair: str(pair[0]["path"]))
    return [block for _, blocks in found for block in blocks]


def expected(data: Path, records: list[list[int]], rule: str, most: int = MAX) -> list[list[list[int]]]:
    """Documents of each row, in file order."""
    rows = []
    first = 0
    for lengths in blocks_of(data):
        assert lengths == [len(ids) for ids in records[first : first + len(lengths)]]
        for row in (views.pack if rule == "pack" else views.split)(lengths, most):
            rows.append([records[first + i][at : at + n] for i, at, n in row])
        first += len(lengths)
    assert first == len(records)
    return rows


def naive(batch: dict[str, Any], most: int) -> list[list[list[int]]]:
    """Documents of each row by its borders alone; checks positions, mask and padding against a plain loop."""
    ids, mask, places = (np.asarray(batch[name]) for name in ("input_ids", "attention_mask", "position_ids"))
    borders = np.asarray(batch["cu_seqlens"])
    assert (borders.dtype, places.dtype, ids.dtype) == (np.int32, np.int64, np.int64)
    rows: list[list[list[int]]] = [[] for _ in ids]
    longest = 0
    assert borders[0] == 0
    assert borders[-1] == ids.size
    for begin, end in zip(borders[:-1].tolist(), borders[1:].tolist()):
        assert begin <= end
        if begin == end:
            assert end == ids.size, "only the end is repeated"
            continue
        longest = max(longest, end - begin)
        row, at = divmod(begin, most)
        assert (end - 1) // most == row, "no sequence crosses a row"
        stretch = slice(at, at + end - begin)
        assert places[row, stretch].tolist() == list(range(end - begin))
        assert len(set(mask[row, stretch].tolist())) == 1
        if mask[row, at]:
            rows[row].append(ids[row, stretch].tolist())
        else:
            assert at + end - begin == most, "padding is the tail"
            assert not ids[row, stretch].any()
    assert isinstance(batch["max_seqlen"], int)
    assert batch["max_seqlen"] == longest
    return rows


def packed_rows(data: Path, **options: Any) -> list[list[list[int]]]:
    given = {"batch_size": 4, "max_length": MAX, "shuffle": "none", "last": "pad", "sample_rule": "pack"} | options
    rows = []
    with Loader(str(data), **given) as loader:
        for batch in loader:
            taken = naive(batch, given["max_length"])
            rows += [row for row, valid in zip(taken, batch["valid"]) if valid]
    return rows


@pytest.mark.parametrize("kind", ["one block", "blocks", "gzip"])
def test_packed_rows_are_those_of_another_packer(tmp_path: Path, kind: str) -> None:
    records = documents(2400 if kind == "blocks" else 500)
    ballast = 5000 if kind == "blocks" else 0
    data = write_jsonl(tmp_path / "data", [records[:300], records[300:]], ballast, kind == "gzip")
    rows = packed_rows(data)
    wanted = expected(data, records, "pack")
    assert rows == wanted
    assert len(blocks_of(data)) == (4 if kind == "blocks" else 2)
    tokens = sum(map(len, records))
    assert tokens / (len(rows) * MAX) > 0.9
    assert max(map(len, rows)) > 2


def test_split_rows_and_what_goes_along(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    records = documents(300)
    data = tmp_path / "data"
    data.mkdir()
    table = {
        "id": pa.array(range(300), pa.int64()),
        "input_ids": pa.array(records, pa.list_(pa.int64())),
        "labels": pa.array([[-n for n in ids] for ids in records], pa.list_(pa.int32())),
        "weight": pa.array([[n / 4 for n in ids] for ids in records], pa.list_(pa.float32())),
        "other": pa.array([[1] for _ in records], pa.list_(pa.int32())),
        "short": pa.array([[1, 2, 3] for _ in records], pa.list_(pa.int32())),
    }
    pq.write_table(pa.table(table), data / "a.parquet", row_group_size=70)
    columns = ["id", "input_ids", "labels", "attention_mask", "weight"]
    options = {"batch_size": 1, "max_length": MAX, "shuffle": "none", "last": "pad", "sample_rule": "split"}
    with Loader(str(data), columns=columns, identities=True, **options) as loader:
        batches = list(loader)
    wanted = [(i, at, ids[at : at + MAX]) for i, ids in enumerate(records) for at in range(0, max(len(ids), 1), MAX)]
    assert len(batches) == len(wanted)
    for batch, (i, _, ids) in zip(batches, wanted):
        pad = [0] * (MAX - len(ids))
        assert batch["id"].tolist() == [i] == batch["_record"].tolist()
        assert batch["input_ids"].tolist() == [ids + pad]
        assert batch["labels"].tolist() == [[-n for n in ids] + pad]
        assert batch["weight"].tolist() == [[n / 4 for n in ids] + pad]
        assert batch["attention_mask"].tolist() == [[1] * len(ids) + pad]
    # By default, all lists that go along.
    with Loader(str(data), **options) as loader:
        assert sorted(next(iter(loader))) == ["attention_mask", "input_ids", "labels", "valid", "weight"]
    # As long as the longest: the rows of sample_rule="record".
    with Loader(str(data), columns=columns, **(options | {"max_length": 4096})) as loader:
        split = list(loader)
    with Loader(str(data), columns=columns, **(options | {"max_length": 4096, "sample_rule": "record"})) as loader:
        whole = list(loader)
    assert len(split) == len(whole) == 300
    for a, b in zip(split, whole):
        assert all(np.array_equal(a[name], b[name]) for name in columns)
    for rule, name, words in (("pack", "id", "one value a record"), ("split", "short", "not as long")):
        with (
            pytest.raises(AthanorError, match=words) as caught,
            Loader(str(data), columns=["input_ids", name], **(options | {"sample_rule": rule})) as loader,
        ):
            next(iter(loader))
        assert caught.value.code == "ATH_COLUMN_UNKNOWN"


def test_data_that_was_packed_before_is_packed_by_default(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = tmp_path / "data"
    data.mkdir()
    records = [[i + 1] * (i % 7 + 1) for i in range(40)]
    lines = [
        {"input_ids": ids, "position_ids": ids, "cu_seqlens": ids, "document_lengths": ids, "labels": ids, "valid": ids}
        for ids in records
    ]
    (data / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = {"batch_size": 2, "max_length": MAX, "shuffle": "none", "last": "pad"}
    made = {"position_ids", "cu_seqlens", "max_seqlen", "valid"}
    with Loader(str(data), sample_rule="pack", **options) as loader:
        batch = next(iter(loader))
    assert set(batch) == {"input_ids", "labels", "attention_mask"} | made
    assert batch["valid"].dtype == bool
    assert batch["position_ids"][0, :3].tolist() == [0, 0, 1]
    with (
        pytest.raises(AthanorError, match="made of packed rows") as caught,
        Loader(str(data), sample_rule="pack", columns=["input_ids", "position_ids"], **options) as loader,
    ):
        next(iter(loader))
    assert caught.value.code == "ATH_COLUMN_UNKNOWN"
    # Rows of records have them as what they are.
    with Loader(str(data), **options) as loader:
        batch = next(iter(loader))
    assert batch["position_ids"][1, :3].tolist() == [2, 2, 0]
    assert batch["valid"].tolist() == [True, True]
    said = caplog.messages
    assert "not delivered (numbers): cu_seqlens, document_lengths, position_ids, valid" in said
    assert "not delivered (numbers): valid" in said


@pytest.mark.parametrize("rule", ["split", "pack"])
def test_lists_beside_text_are_refused_for_the_true_reason(tmp_path: Path, rule: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    lines = [{"text": "a b c", "id": 1, "labels": [1, 2, 3]} for _ in range(5)]
    (data / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = {"batch_size": 1, "max_length": MAX, "tokenizer": str(TOKENIZER), "sample_rule": rule}
    with (
        pytest.raises(AthanorError, match="nothing tells which token of the text") as caught,
        Loader(str(data), columns=["input_ids", "labels"], **options) as loader,
    ):
        next(iter(loader))
    assert caught.value.code == "ATH_COLUMN_UNKNOWN"
    assert "value for each token" not in str(caught.value)
    if rule == "split":
        with Loader(str(data), columns=["input_ids", "id"], **options) as loader:
            assert next(iter(loader))["id"].tolist() == [1]


@pytest.mark.parametrize("form", ["tfrecord", "parquet", "hdf5", "mds", "webdataset", "zstd"])
@pytest.mark.parametrize("shuffle", ["window", "global"])
def test_every_format_is_packed_alike(tmp_path: Path, form: str, shuffle: str) -> None:
    records = documents(260, seed=4)
    records = [ids or [3] for ids in records]
    data = tmp_path / "data"
    data.mkdir()
    lines = [{"id": i, "input_ids": ids, "attention_mask": [1] * len(ids)} for i, ids in enumerate(records)]
    if form == "zstd":
        zstandard = pytest.importorskip("zstandard")
        compressor = zstandard.ZstdCompressor()
        texts = ["".join(json.dumps(line) + "\n" for line in lines[i : i + 20]).encode() for i in range(0, 260, 20)]
        (data / "a.jsonl.zst").write_bytes(b"".join(map(compressor.compress, texts)))
    else:
        try:
            write_shard(form, data / "a", lines)
        except ImportError:
            pytest.skip(f"skipped: no library for {form}")
    wanted = packed_rows(data)
    assert wanted == expected(data, records, "pack")
    options = {
        "max_length": MAX,
        "sample_rule": "pack",
        "batch_size": 3,
        "shuffle": shuffle,
        "shuffle_memory": 1,
        "seed": 8,
    }
    with Loader(str(data), last="drop", **options) as loader:
        rows = [row for batch in loader for row in naive(batch, MAX)]
    assert len(rows) == len(wanted) // 3 * 3
    assert all(row in wanted for row in rows)
    assert len({json.dumps(row) for row in rows}) == len(rows)


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


def text_set(folder: Path, count: int = 400) -> tuple[Path, list[list[int]]]:
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(str(TOKENIZER / "tokenizer.json"))
    tokenizer.encode_special_tokens = True
    texts = [entry["text"] for entry in json.loads((TOKENIZER.parent / "expected.json").read_text(encoding="utf-8"))]
    draw = random.Random(5)
    written = [" ".join(draw.choices(texts, k=draw.randrange(4))) for _ in range(count)]
    folder.mkdir()
    for shard in range(3):
        lines = written[shard * count // 3 : (shard + 1) * count // 3]
        (folder / f"{shard}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in lines))
    return folder, [[0, *tokenizer.encode(text, add_special_tokens=False).ids, 1] for text in written]


def test_text_is_packed_with_its_tokens_around_each_document(tmp_path: Path) -> None:
    data, records = text_set(tmp_path / "data")
    options = {"tokenizer": TOKENIZER, "add_special_tokens": "both", "pad_id": 0}
    rows = packed_rows(data, **options)
    assert rows == expected(data, records, "pack")
    # The same counts serve another length and rule.
    (folder,) = (path for path in (data / ".athanor" / "views").iterdir() if path.is_dir())
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    with Loader(
        str(data), batch_size=1, max_length=32, shuffle="none", last="pad", sample_rule="split", **options
    ) as loader:
        split = [batch["input_ids"][0][: int(batch["attention_mask"].sum())].tolist() for batch in loader]
    assert split == [row[0] for row in expected(data, records, "split", 32)]
    assert before == {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


def test_conversations_are_packed_with_their_loss_masks(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    says = [("hi " * (i % 7), "yes " * (i % 11 + 1)) for i in range(60)]
    turns = [[{"role": "user", "content": a}, {"role": "assistant", "content": b}] for a, b in says]
    (data / "a.jsonl").write_text("".join(json.dumps({"messages": one}) + "\n" for one in turns))
    template = tmp_path / "template.jinja"
    template.write_text(
        "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}"
        "{% else %}U: {{ m.content }}{% endif %}{% endfor %}"
    )
    options: dict[str, Any] = {"tokenizer": TOKENIZER, "chat_template": str(template), "pad_id": 0, "last": "pad"}

    def pairs(ids: Any, mask: Any) -> tuple[list[int], list[int]]:
        return ids.tolist(), mask.tolist()

    with Loader(str(data), batch_size=1, max_length=4096, shuffle="none", **options) as loader:
        lengths = [(batch, int(batch["attention_mask"].sum())) for batch in loader]
    whole = [pairs(batch["input_ids"][0, :n], batch["loss_mask"][0, :n]) for batch, n in lengths]
    found = []
    with Loader(str(data), batch_size=2, max_length=256, sample_rule="pack", **options) as loader:
        for batch in loader:
            naive(batch, 256)
            ids, mask, real = (batch[name].reshape(-1) for name in ("input_ids", "loss_mask", "attention_mask"))
            for begin, end in zip(batch["cu_seqlens"][:-1], batch["cu_seqlens"][1:]):
                if end > begin and real[begin] and batch["valid"][begin // 256]:
                    found.append(pairs(ids[begin:end], mask[begin:end]))
    assert max(len(ids) for ids, _ in whole) <= 256
    assert sorted(found) == sorted(whole)
    assert any(0 < sum(mask) < len(mask) for _, mask in found)


def world_rows(data: Path, world: int, batch: int, steps: range, state: Any, proof: Path) -> tuple[list[Any], Any]:
    """Rows of steps by position, of all ranks of a world; and the state behind them."""
    found: dict[int, Any] = {}
    states = []
    options = {"max_length": MAX, "sample_rule": "pack", "seed": 3, "shuffle_memory": 60_000, "global_batch_size": 12}
    loaders = [
        Loader(
            str(data), batch_size=batch, rank=rank, world_size=world, local_rank=rank, identities=True,
            proof_dir=str(proof), state=state, **options,
        )
        for rank in range(world)
    ]  # fmt: skip
    try:
        iterators = [iter(loader) for loader in loaders]
        for _ in steps:
            for iterator in iterators:
                taken = next(iterator)
                for position, row in zip(taken["_position"].tolist(), naive(taken, MAX)):
                    found[position] = row
        states = [loader.state_dict() for loader in loaders]
    finally:
        for loader in loaders:
            loader.close()
    assert all(one == states[0] for one in states)
    return [found[position] for position in sorted(found)], states[0]


def test_one_order_at_any_world_size_resumed_at_any_step_and_proved(tmp_path: Path) -> None:
    records = documents(1500, seed=9)
    data = write_jsonl(tmp_path / "data", [records[:900], records[900:]], 9000)
    assert len(packed_rows(data)) > 600
    wanted = sorted(expected(data, records, "pack"))
    steps = len(wanted) // 12
    whole, _ = world_rows(data, 1, 12, range(steps), None, tmp_path / "whole" / "proof")
    assert whole != sorted(whole)
    flat = sorted(whole)
    assert all(row in wanted for row in flat)
    assert len({json.dumps(row) for row in flat}) == len(flat)
    draw = random.Random(2)
    for _ in range(3):
        proof = tmp_path / f"cut-{draw.random()}" / "proof"
        cut = draw.randrange(1, steps - 1)
        first, state = world_rows(data, 2, 3, range(cut * 2), None, proof)
        rest, _ = world_rows(data, 3, 4, range(steps - cut), state, proof)
        assert first + rest == whole
        checked = athanor("state", "verify", proof.parent, "--data", data)
        assert checked.returncode == 0, checked.stdout + checked.stderr
    # Without the rows that were kept (an index that nobody may write has none): the proof says how they are made.
    (kept,) = (data / ".athanor" / "views").glob("*.bin")
    kept.unlink()
    checked = athanor("state", "verify", tmp_path / "whole", "--data", data)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert not kept.exists()
    # One that does not say so names the file that is missing; without counts, too.
    line = next(iter(sorted((tmp_path / "whole" / "proof").glob("*.jsonl"))))
    said = line.read_text()
    head, rest = said.split("\n", 1)
    line.write_text(json.dumps({k: v for k, v in json.loads(head).items() if k != "pieces"}) + "\n" + rest)
    missing = athanor("state", "verify", tmp_path / "whole", "--data", data, "--json")
    error = json.loads(missing.stderr)["error"]
    assert (error["code"], error["file"]) == ("ATH_VIEW_MISSING", str(kept))
    assert "athanor index --view" in error["remedy"]
    line.write_text(said)
    (folder,) = (path for path in (data / ".athanor" / "views").iterdir() if path.is_dir())
    folder.rename(tmp_path / "counts")
    missing = athanor("state", "verify", tmp_path / "whole", "--data", data, "--json")
    assert json.loads(missing.stderr)["error"]["code"] == "ATH_VIEW_MISSING"
    (tmp_path / "counts").rename(folder)
    # A proof of other rows is not taken.
    line = next(iter(sorted((tmp_path / "whole" / "proof").glob("*.jsonl"))))
    text = line.read_text().splitlines()
    entry = json.loads(text[-1])
    entry["sum"] = str((int(entry["sum"], 0) + 1) % 2**64) if isinstance(entry["sum"], str) else entry["sum"] + 1
    line.write_text("\n".join([*text[:-1], json.dumps(entry)]) + "\n")
    assert athanor("state", "verify", tmp_path / "whole", "--data", data).returncode == 1


@pytest.mark.parametrize("damage", ["cut in the header", "cut", "count", "json", "of another shard"])
def test_damaged_counts_are_counted_again_by_the_command_that_the_loader_names(tmp_path: Path, damage: str) -> None:
    data = write_jsonl(tmp_path / "data", [documents(40), documents(41), documents(40)])
    flags = ("--max-length", MAX, "--sample-rule", "pack", "--json")
    first = json.loads(athanor("index", data, "--view", *flags).stdout)
    files = [*(data / ".athanor/views").glob("*/*.bin")]
    own, other = (next(file for file in files if name in file.read_bytes()) for name in (b'"0.jsonl"', b'"2.jsonl"'))
    whole = own.read_bytes()
    broken = {
        "cut in the header": whole[:30],
        "cut": whole[:-5],
        "count": whole[:70] + bytes([whole[70] ^ 1]) + whole[71:],
        "json": whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:],
        "of another shard": other.read_bytes(),
    }
    own.write_bytes(broken[damage])
    with pytest.raises(AthanorError, match=r"index --view") as caught:
        list(Loader(str(data), batch_size=1, max_length=MAX, sample_rule="pack"))
    assert caught.value.code == "ATH_INDEX_CORRUPT"
    again = athanor("index", data, "--view", *flags)
    assert "counted again" in again.stderr
    assert json.loads(again.stdout)["counted"] == 1
    assert own.read_bytes() == whole
    with Loader(str(data), batch_size=1, max_length=MAX, sample_rule="pack") as loader:
        assert sum(1 for _ in loader) == first["rows"]


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


def test_damaged_counts_and_lists_that_do_not_go_together(tmp_path: Path) -> None:
    records = documents(50)
    data = write_jsonl(tmp_path / "data", [records])
    assert packed_rows(data)
    (folder,) = (path for path in (data / ".athanor" / "views").iterdir() if path.is_dir())
    (file,) = folder.iterdir()
    whole = bytearray(file.read_bytes())
    whole[80] ^= 1
    file.write_bytes(whole)
    with pytest.raises(AthanorError, match="damaged") as caught:
        packed_rows(data)
    assert caught.value.code == "ATH_INDEX_CORRUPT"
    assert caught.value.file == str(file)
    odd = tmp_path / "odd"
    odd.mkdir()
    lines = [{"input_ids": [1, 2], "labels": [1]}, {"input_ids": [1], "labels": [1, 2]}]
    (odd / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(AthanorError, match="labels") as caught:
        packed_rows(odd)
    assert (caught.value.code, caught.value.record) == ("ATH_RECORD_MALFORMED", 0)


def test_bad_records_end_the_counting_or_are_in_no_row(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    data = tmp_path / "data"
    data.mkdir()
    texts = [b"\xff\xfe" if i % 40 == 7 else b"one two three " * (i % 9) for i in range(120)]
    pq.write_table(pa.table({"text": pa.array(texts, pa.binary())}), data / "a.parquet")
    options: dict[str, Any] = {"tokenizer": TOKENIZER, "add_special_tokens": "both"}
    replace = options | {"on_corrupt": "replace", "ledger_dir": str(tmp_path / "ledger")}
    with pytest.raises(AthanorError, match="not UTF-8") as caught:
        packed_rows(data, **options)
    assert (caught.value.code, caught.value.record) == ("ATH_RECORD_MALFORMED", 7)
    for rule in ("pack", "split"):
        with Loader(str(data), batch_size=1, max_length=16, last="pad", sample_rule=rule, **replace) as loader:
            tokens = sum(int(batch["attention_mask"].sum()) for batch in loader)
        with Loader(str(data), batch_size=1, max_length=4096, last="pad", **replace) as loader:
            whole = [int(batch["attention_mask"].sum()) for batch in loader]
        assert len(whole) == 120
        lengths = [n for block in blocks_of(data) for n in block]
        assert [i for i, n in enumerate(lengths) if n == 2**32 - 1] == [7, 47, 87]
        assert tokens == sum(n for n in lengths if n != 2**32 - 1)
    with pytest.raises(AthanorError, match="3 bad records were left out") as caught:
        packed_rows(data, **options)
    assert (caught.value.code, caught.value.record) == ("ATH_RECORD_MALFORMED", 7)
    with pytest.raises(AthanorError, match="corrupt_quota is 2") as caught:
        packed_rows(data, **(replace | {"corrupt_quota": 2}))
    assert caught.value.code == "ATH_QUARANTINE_QUOTA"
    flags = ("--tokenizer", TOKENIZER, "--add-special-tokens", "both", "--sample-rule", "pack", "--max-length", 16)
    kept = athanor("index", data, "--view", "--rebuild", "--on-corrupt", "keep", *flags)
    assert kept.returncode == 0
    assert "3 bad records in no row" in kept.stderr
    ended = athanor("index", data, "--view", "--rebuild", *flags)
    assert ended.returncode == 1
    assert "record 7" in ended.stderr


def test_counting_anew_makes_the_rows_of_a_repaired_page_anew(tmp_path: Path) -> None:
    """The footer of a Parquet file, all that names the data, is the same before and after."""
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    data = tmp_path / "data"
    data.mkdir()
    file = data / "a.parquet"
    ids = [[1000 + i] * 30 for i in range(100)]
    table = pa.table({"input_ids": pa.array(ids, pa.list_(pa.int32()))})
    pq.write_table(table, file, row_group_size=50, compression="zstd")
    flags = ("--view", "--sample-rule", "pack", "--max-length", 60, "--json")
    whole, stat = file.read_bytes(), file.stat()

    def put(content: bytes) -> None:
        file.write_bytes(content)
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    assert athanor("index", data).returncode == 0
    at = pq.ParquetFile(file).metadata.row_group(1).column(0)
    page = at.dictionary_page_offset or at.data_page_offset
    put(whole[:page] + bytes(b ^ 0xFF for b in whole[page : page + 40]) + whole[page + 40 :])
    kept = json.loads(athanor("index", data, *flags, "--on-corrupt", "keep").stdout)
    assert (kept["rows"], kept["bad"]) == (25, 50)
    put(whole)
    again = json.loads(athanor("index", data, *flags, "--rebuild").stdout)
    assert (again["view"], again["rows"], again["tokens"], again["bad"]) == (kept["view"], 50, 3000, 0)
    with Loader(str(data), batch_size=1, max_length=60, sample_rule="pack") as loader:
        found = [int(n) for batch in loader for n in batch["input_ids"].ravel()]
    assert sorted(found) == sorted(n for row in ids for n in row)


def test_what_is_refused_says_what_to_do(tmp_path: Path) -> None:
    data = write_jsonl(tmp_path / "data", [documents(20)])
    options = {"batch_size": 1, "sample_rule": "pack"}
    for more, words in (
        ({"agent": "none"}, 'agent="none"'),
        ({"padding": "longest"}, "padding"),
        ({"dp_rank": 0, "dp_world_size": 1, "cp_rank": 0, "cp_size": 2}, "context parallelism"),
        ({"sample_rule": "pile"}, "sample_rule"),
    ):
        with pytest.raises(ValueError, match=words):
            Loader(str(data), **(options | more))
    np.save(tmp_path / "tokens.npy", np.arange(100, dtype=np.int32))
    with (
        pytest.raises(AthanorError, match="sample_rule") as caught,
        Loader(str(tmp_path / "tokens.npy"), index_dir=str(tmp_path / "index"), **options) as loader,
    ):
        next(iter(loader))
    assert caught.value.code == "ATH_SAMPLE_RULE"
    masked = tmp_path / "masked"
    masked.mkdir()
    (masked / "a.jsonl").write_text(json.dumps({"input_ids": [1, 2, 0], "attention_mask": [1, 1, 0]}) + "\n")
    with pytest.raises(AthanorError, match="padding would be taken for tokens"):
        packed_rows(masked)


def test_mixtures_by_tokens_and_tensors_of_workers(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    records = {"a": documents(300, 1), "b": [[7] * 3 for _ in range(400)]}
    a, b = (write_jsonl(tmp_path / name, [records[name]]) for name in "ab")
    mix = {
        "weights_by": "tokens",
        "sources": {"a": {"path": str(a), "weight": 0.5}, "b": {"path": str(b), "weight": 0.5}},
    }
    options: dict[str, Any] = {"batch_size": 8, "max_length": MAX, "sample_rule": "pack"}
    with TorchLoader(mix=mix, **options) as loader:
        iterator = iter(loader)
        batches = [next(iterator) for _ in range(6)]
        taken = [row for batch in batches for row in naive(batch, MAX)]
    most = max(len(row) for path in (a, b) for row in expected(path, records[path.name], "pack"))
    assert {(batch["cu_seqlens"].dtype, batch["cu_seqlens"].numel()) for batch in batches} == {
        (torch.int32, 8 * (most + 1) + 1)
    }
    shares = [sum(len(ids) for row in taken for ids in row if (ids[0] == 7) == mine) for mine in (True, False)]
    assert 0.8 < shares[0] / shares[1] < 1.25
    dataset = AthanorDataset(str(a), **options)
    loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=1)
    for batch, _ in zip(loader, range(3)):
        naive(batch, MAX)
