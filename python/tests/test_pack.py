"""`sample_rule="split"` and `"pack"`: rows against an independent packer, of all formats and kinds of data."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from athanor import AthanorError
from athanor.numpy import Loader
from athanor.torch import AthanorDataset
from athanor.torch import Loader as TorchLoader
from format_writer import write_shard
from packed_sets import MAX, TOKENIZER, blocks_of, documents, expected, naive, packed_rows, write_jsonl

pytestmark = pytest.mark.usefixtures("run_dir")


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
