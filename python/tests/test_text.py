"""Text on the fly: a Loader with tokenizer= against Python's `tokenizers` over the same documents."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from athanor import AthanorError
from athanor.torch import DeepSeekDataset, Loader
from conftest import ROOT

tokenizers = pytest.importorskip("tokenizers", reason="skipped: tokenizers is not installed")

FIXTURES = ROOT / "test/fixtures/tokenizer"
PAD = 2  # of the fixture's tokenizer_config.json


@pytest.fixture(scope="module")
def documents() -> list[str]:
    texts = [entry["text"] for entry in json.loads((FIXTURES / "expected.json").read_text(encoding="utf-8"))]
    draw = random.Random(3)
    return [" ".join(draw.choices(texts, k=draw.randrange(3))) for _ in range(200)] + ["", "x" * 3000]


@pytest.fixture
def data(tmp_path: Path, documents: list[str]) -> str:
    folder = tmp_path / "data"
    folder.mkdir()
    for shard in range(4):
        lines = [json.dumps({"id": i, "text": documents[i]}) for i in range(shard, len(documents), 4)]
        (folder / f"{shard}.jsonl").write_text("\n".join(lines) + "\n")
    return str(folder)


def oracle(text: str, name: str, special: bool = False, template: bool = False) -> list[int]:
    tokenizer = tokenizers.Tokenizer.from_file(str(FIXTURES / name / "tokenizer.json"))
    tokenizer.encode_special_tokens = not special
    return list(tokenizer.encode(text, add_special_tokens=template).ids)


def rows(data: str, name: str, **options: Any) -> dict[int, tuple[list[int], list[int]]]:
    """input_ids and attention_mask by document."""
    options = {"batch_size": 8, "max_length": 64, "last": "pad", "shuffle": "none"} | options
    out = {}
    columns = ["input_ids", "attention_mask", "id"]
    with Loader(data, tokenizer=FIXTURES / name, columns=columns, **options) as loader:
        for batch in loader:
            for i in range(len(batch["id"])):
                if "valid" not in batch or bool(batch["valid"][i]):
                    out[int(batch["id"][i])] = (batch["input_ids"][i].tolist(), batch["attention_mask"][i].tolist())
    return out


@pytest.mark.parametrize("name", ["deepseek", "llama", "wordpiece"])
def test_rows_are_what_the_library_gives(run_dir: Path, data: str, documents: list[str], name: str) -> None:
    found = rows(data, name)
    assert sorted(found) == list(range(len(documents)))
    begin, end = len(oracle("", name, template=True)) - (name == "wordpiece"), int(name == "wordpiece")
    whole = oracle("", name, template=True)
    for i, (ids, mask) in found.items():
        inner = oracle(documents[i], name)[: 64 - begin - end]
        expected = whole[:begin] + inner + whole[begin:]
        assert ids == expected + [PAD if name == "deepseek" else 0] * (64 - len(expected)), documents[i]
        assert mask == [1] * len(expected) + [0] * (64 - len(expected))


def test_options(run_dir: Path, data: str, documents: list[str]) -> None:
    left = rows(data, "deepseek", truncation_side="left", add_special_tokens="both", pad_id=7)
    parsed = rows(data, "deepseek", parse_special=True)
    for i, text in enumerate(documents):
        expected = [0, *oracle(text, "deepseek")[-62:], 1]
        assert left[i][0] == expected + [7] * (64 - len(expected))
        expected = oracle(text, "deepseek", special=True)[:64]
        assert parsed[i][0] == expected + [PAD] * (64 - len(expected))


def test_padding_to_the_longest(run_dir: Path, data: str, documents: list[str]) -> None:
    whole = rows(data, "deepseek", max_length=100)
    with Loader(
        data,
        tokenizer=str(FIXTURES / "deepseek" / "tokenizer.json"),
        batch_size=8,
        max_length=100,
        shuffle="none",
        padding="longest",
        pad_to_multiple_of=8,
    ) as loader:
        widths = set()
        for step, batch in enumerate(loader):
            assert sorted(batch) == ["attention_mask", "input_ids"]
            width = batch["input_ids"].shape[1]
            longest = int(batch["attention_mask"].sum(1).max())
            assert width == min(100, max(8, -(-longest // 8) * 8)) == batch["attention_mask"].shape[1]
            widths.add(width)
            assert step < len(whole)
        assert len(widths) > 1


def test_resume_and_another_tokenizer(run_dir: Path, data: str) -> None:
    options = {"batch_size": 8, "max_length": 32, "seed": 5, "add_special_tokens": False}
    with Loader(data, tokenizer=FIXTURES / "deepseek", **options) as loader:
        whole = [batch["input_ids"].tolist() for batch in loader]
    with Loader(data, tokenizer=FIXTURES / "deepseek", **options) as loader:
        iterator = iter(loader)
        first = [next(iterator)["input_ids"].tolist() for _ in range(9)]
        state = loader.state_dict()
    with Loader(data, tokenizer=FIXTURES / "deepseek", **options) as loader:
        loader.load_state_dict(state)
        assert first + [batch["input_ids"].tolist() for batch in loader] == whole
    for other in ({"parse_special": True}, {"truncation_side": "left"}, {"tokenizer": FIXTURES / "coder"}):
        with (
            pytest.raises(AthanorError, match="tokenizer"),
            Loader(data, **({"tokenizer": FIXTURES / "deepseek"} | options | other)) as loader,
        ):
            loader.load_state_dict(state)


def test_text_that_is_not_utf8_and_missing_text(run_dir: Path, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    good = ["one", None, "", "two " * 50]
    table = pyarrow.table({"body": pyarrow.array(good, pyarrow.string()), "id": list(range(4))})
    parquet.write_table(table, tmp_path / "a.parquet")
    found = rows(str(tmp_path), "deepseek", batch_size=1)
    assert [sum(mask) for _, mask in (found[i] for i in range(4))][1:3] == [0, 0]
    assert found[3][0][:64] == oracle(good[3] or "", "deepseek")[:64]
    bad = tmp_path / "bad"
    bad.mkdir()
    values = pyarrow.array([b"fine", b"\xff\xfe", b"fine too"], pyarrow.binary())
    parquet.write_table(pyarrow.table({"text": values, "id": [0, 1, 2]}), bad / "a.parquet")
    with pytest.raises(AthanorError, match="not UTF-8"):
        rows(str(bad), "deepseek", batch_size=1)
    replaced = rows(str(bad), "deepseek", batch_size=1, on_corrupt="replace", ledger_dir=str(tmp_path / "ledger"))
    assert sorted(replaced) == [0, 2]


def test_what_is_refused_says_what_to_write(run_dir: Path, data: str, tmp_path: Path) -> None:
    folder = str(FIXTURES / "deepseek")
    with (
        pytest.raises(AthanorError, match="tokenizer=") as caught,
        Loader(data, batch_size=1, columns=["text"]) as loader,
    ):
        next(iter(loader))
    assert caught.value.code == "ATH_COLUMN_UNKNOWN"
    with (
        pytest.raises(AthanorError, match="text_column="),
        Loader(data, batch_size=1, tokenizer=folder, text_column="body") as loader,
    ):
        next(iter(loader))
    with (
        pytest.raises(AthanorError, match="names of a model hub are not taken") as caught,
        Loader(data, batch_size=1, tokenizer="deepseek-ai/DeepSeek-V3") as loader,
    ):
        next(iter(loader))
    assert caught.value.code == "ATH_NOT_FOUND"
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.jsonl").write_text('{"text": "a", "n": 1, "x": 1}\n{"text": "b", "n": 2, "x": "b"}\n')
    for name, why in {
        "n": r"n holds numbers \(int64\)",
        "x": r"x (has|holds)",
        "gone": "gone is not in the data",
    }.items():
        with (
            pytest.raises(AthanorError, match=f"text column {why}") as caught,
            Loader(str(other), batch_size=1, tokenizer=folder, text_column=name) as loader,
        ):
            next(iter(loader))
        assert caught.value.code == "ATH_COLUMN_UNKNOWN"
        assert "columns of text: text" in str(caught.value)
        assert "lists or objects: none" in str(caught.value)
    (tmp_path / "tokenizer.json").write_text("{}")
    with (
        pytest.raises(AthanorError, match="no model") as caught,
        Loader(data, batch_size=1, tokenizer=tmp_path) as loader,
    ):
        next(iter(loader))
    assert caught.value.code == "ATH_TOKENIZER_UNREADABLE"
    with pytest.raises(ValueError, match='agent="none"'):
        Loader(data, batch_size=1, tokenizer=folder, agent="none")
    with pytest.raises(ValueError, match="path of a tokenizer"):
        Loader(data, batch_size=1, tokenizer=object())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tokenizer must be given"):
        Loader(data, batch_size=1, parse_special=True)
    with pytest.raises(ValueError, match="padding"):
        Loader(data, batch_size=1, pad_to_multiple_of=8)


def test_map_style(run_dir: Path, data: str, documents: list[str]) -> None:
    dataset = DeepSeekDataset(data, str(FIXTURES / "deepseek"), 16)
    first = [json.loads(line)["text"] for line in (Path(data) / "0.jsonl").read_text().splitlines()]
    for i in (0, 7, 3):
        expected = oracle(first[i], "deepseek")[:16]
        assert dataset[i]["input_ids"].tolist() == expected + [PAD] * (16 - len(expected))
    dataset.close()


def test_padding_to_the_longest_cut_real_tokens_of_rows_that_are_padded_on_the_left(
    run_dir: Path, tmp_path: Path
) -> None:
    data = tmp_path / "left"
    data.mkdir()
    lines = [{"input_ids": [0] * (5 - i) + [i + 1] * i, "attention_mask": [0] * (5 - i) + [1] * i} for i in range(4)]
    (data / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with Loader(str(data), batch_size=4, max_length=16, shuffle="none", padding="longest") as loader:
        batch = next(iter(loader))
    assert batch["input_ids"].tolist() == [line["input_ids"] for line in lines]
    assert batch["attention_mask"].tolist() == [line["attention_mask"] for line in lines]


def test_padding_to_the_longest_of_rows_of_one_token(run_dir: Path, tmp_path: Path) -> None:
    data = tmp_path / "one"
    data.mkdir()
    (data / "a.jsonl").write_text("".join(json.dumps({"input_ids": [i]}) + "\n" for i in range(4)))
    with Loader(str(data), batch_size=4, max_length=16, shuffle="none", padding="longest") as loader:
        assert next(iter(loader))["input_ids"].reshape(-1).tolist() == [0, 1, 2, 3]


def test_a_text_without_a_word_border_is_replaced_as_any_bad_record(run_dir: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    texts = ["a b", "é" * 9_000_000, "c d"]
    lines = [json.dumps({"id": i, "text": text}, ensure_ascii=False) for i, text in enumerate(texts)]
    (folder / "0.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(AthanorError, match="ATH_TEXT_RUN_TOO_LONG"):
        rows(str(folder), "deepseek", batch_size=1)
    ledger = tmp_path / "ledger"
    found = rows(str(folder), "deepseek", batch_size=1, on_corrupt="replace", ledger_dir=ledger)
    assert sorted(found) == [0, 2]
    (line,) = [json.loads(line) for file in ledger.iterdir() for line in file.open()]
    assert (line["record"], line["code"], line["replacement"]["record"]) == (1, "ATH_TEXT_RUN_TOO_LONG", 0)
