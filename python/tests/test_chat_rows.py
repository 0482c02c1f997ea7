"""Conversations through a Loader: rows and loss masks of all formats, bad ones by record, refusals, resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from athanor import AthanorError
from athanor.torch import Loader
from chats import CHATS, ours, turn, write_tokenizer
from conftest import ROOT


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("chat-tokenizer"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.mkdir()
    lines = [{"id": i, "messages": messages, "tools": tools} for i, (messages, tools) in enumerate(CHATS)]
    (path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def rows(data: Path, folder: Path, name: str, **options: Any) -> dict[int, dict[str, list[int]]]:
    columns = ["input_ids", "attention_mask", "loss_mask", "id"]
    options = {"batch_size": 2, "max_length": 96, "last": "pad", "shuffle": "none", "columns": columns} | options
    template = ROOT / f"test/fixtures/chat/{name}.jinja"
    out = {}
    with Loader(data, tokenizer=folder, chat_template=template, **options) as loader:
        for batch in loader:
            for i in range(len(batch["id"])):
                if bool(batch["valid"][i]):
                    out[int(batch["id"][i])] = {key: batch[key][i].tolist() for key in columns[:3]}
    return out


def check(found: dict[int, dict[str, list[int]]], folder: Path, name: str, width: int = 96) -> None:
    template = (ROOT / f"test/fixtures/chat/{name}.jinja").read_text(encoding="utf-8")
    expected = ours(folder, template, CHATS)
    assert len(found) == len(expected)
    for i, one in enumerate(expected):
        ids, marked = one["ids"][:width], one["marked"][:width]
        rest = [0] * (width - len(ids))
        assert found[i]["attention_mask"] == [1] * len(ids) + rest
        assert found[i]["input_ids"][: len(ids)] == ids
        assert found[i]["loss_mask"] == marked + rest


def test_chats_of_json_lines(run_dir: Path, data: Path, folder: Path) -> None:
    check(rows(data, folder, "chatml"), folder, "chatml")
    check(rows(data, folder, "chatml", max_length=9), folder, "chatml", 9)
    named = rows(data, folder, "chatml", messages_column="messages", tools_column="tools")
    assert named == rows(data, folder, "chatml")
    left = rows(data, folder, "chatml", max_length=9, truncation_side="left")
    template = (ROOT / "test/fixtures/chat/chatml.jinja").read_text(encoding="utf-8")
    for i, one in enumerate(ours(folder, template, CHATS)):
        assert left[i]["loss_mask"] == (one["marked"][-9:] + [0] * 9)[:9]


def test_chats_of_parquet_mds_and_json_text(run_dir: Path, tmp_path: Path, folder: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    simple = [(messages, None) for messages, tools in CHATS if tools is None]
    template = (ROOT / "test/fixtures/chat/chatml.jinja").read_text(encoding="utf-8")
    expected = [one["ids"] for one in ours(folder, template, simple)]
    structs = pyarrow.array([messages for messages, _ in simple])
    texts = pyarrow.array([json.dumps(messages) for messages, _ in simple])
    for name, column in (("messages", structs), ("dialog", texts)):
        path = tmp_path / name
        path.mkdir()
        table = pyarrow.table({"id": list(range(len(simple))), name: column, "other": texts})
        parquet.write_table(table, path / "a.parquet", row_group_size=2)
        options = {} if name == "messages" else {"messages_column": "dialog"}
        found = rows(path, folder, "chatml", **options)
        got = [[v for v, m in zip(found[i]["input_ids"], found[i]["attention_mask"]) if m] for i in range(len(simple))]
        assert got == expected, name


def test_records_that_are_no_conversation(run_dir: Path, tmp_path: Path, folder: Path) -> None:
    good = [turn("user", "x"), turn("assistant", "y")]
    bad: list[Any] = [[{"content": "no role"}], [{"role": "assistant", "content": None}], [{"role": 7}]]
    for number, messages in enumerate(bad):
        path = tmp_path / str(number)
        path.mkdir()
        lines = [{"id": 0, "messages": good}, {"id": 1, "messages": messages}, {"id": 2, "messages": good}]
        (path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        with pytest.raises(AthanorError, match="does not take the conversation") as caught:
            rows(path, folder, "think", batch_size=1)
        assert (caught.value.code, caught.value.record) == ("ATH_RECORD_MALFORMED", 1)
        kept = rows(path, folder, "think", batch_size=1, on_corrupt="replace", ledger_dir=str(tmp_path / f"l{number}"))
        assert sorted(kept) == [0, 2]
    path = tmp_path / "empty"
    path.mkdir()
    lines = [{"id": 0, "messages": []}, {"id": 1, "messages": None}, {"id": 2, "messages": good}]
    (path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = rows(path, folder, "think")
    assert [sum(found[i]["attention_mask"]) > 0 for i in range(3)] == [False, False, True]


def test_what_is_refused_says_what_to_write(run_dir: Path, data: Path, folder: Path, tmp_path: Path) -> None:
    def refused(code: str, match: str, **options: Any) -> None:
        with (
            pytest.raises(AthanorError, match=match) as caught,
            Loader(data, **({"batch_size": 1, "tokenizer": folder} | options)) as loader,
        ):
            next(iter(loader))
        assert caught.value.code == code

    refused("ATH_CHAT_TEMPLATE", "no chat template: neither")
    refused("ATH_COLUMN_UNKNOWN", "messages column talk is not in the data", messages_column="talk")
    refused("ATH_COLUMN_UNKNOWN", "text column", text_column="messages")
    template = str(ROOT / "test/fixtures/chat/chatml.jinja")
    refused("ATH_TOKENIZER_UNSUPPORTED", "goes with text", chat_template=template, add_special_tokens="bos")
    refused("ATH_COLUMN_UNKNOWN", "tools column", chat_template=template, tools_column="other")
    broken = tmp_path / "broken.jinja"
    broken.write_text("{% for %}")
    refused("ATH_CHAT_TEMPLATE", "cannot be read", chat_template=broken)
    broken.write_text("{% for m in messages %}{{ m.content }}")
    refused("ATH_CHAT_TEMPLATE", "it does not parse, a block in it is not closed", chat_template=broken)
    broken.write_bytes(b"\xff{{ messages[0].content }}")
    refused("ATH_CHAT_TEMPLATE", "is not UTF-8", chat_template=broken)
    for text in ["", "{# nothing #}\n\n", "{% if false %}{{ messages }}{% endif %}"]:
        broken.write_text(text)
        refused("ATH_CHAT_TEMPLATE", "writes nothing of a conversation", chat_template=broken)
    broken.write_text("{{ messages[0].content if messages | length == 1 }}")
    refused("ATH_RECORD_MALFORMED", "writes nothing of it", chat_template=broken)
    forgets = tmp_path / "forgets.jinja"
    forgets.write_text("{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}")
    refused("ATH_CHAT_TEMPLATE", "does not tell where message 1", chat_template=forgets)
    endless = tmp_path / "endless.jinja"
    loops = "".join(f"{{% for {name} in range(100000) %}}" for name in "abcd") + "{% endfor %}" * 4
    endless.write_text(loops)
    refused("ATH_CHAT_TEMPLATE", "was not done", chat_template=endless, timeout=60)
    empty = tmp_path / "model"
    empty.mkdir()
    (empty / "tokenizer.model").write_text("")
    refused("ATH_TOKENIZER_UNREADABLE", "it holds tokenizer.model", tokenizer=empty)
    with pytest.raises(ValueError, match="text_column and messages_column"):
        Loader(data, batch_size=1, tokenizer=folder, text_column="a", messages_column="b")
    with pytest.raises(ValueError, match="got its text"):
        Loader(data, batch_size=1, tokenizer=folder, chat_template="{{ messages }}")
    with pytest.raises(ValueError, match="chat_template_kwargs"):
        Loader(data, batch_size=1, tokenizer=folder, chat_template_kwargs={"x": object()})


def test_resume_knows_the_template_and_what_it_is_given(
    run_dir: Path, data: Path, folder: Path, tmp_path: Path
) -> None:
    template = tmp_path / "t.jinja"
    template.write_text("{{ today }}{% for m in messages %}{{ '<|im_start|>' + m.content + '<|im_end|>' }}{% endfor %}")
    options = {"batch_size": 1, "max_length": 64, "tokenizer": folder, "chat_template": template, "seed": 3}
    given = {"today": "1 May"}
    with Loader(data, **options, chat_template_kwargs=given) as loader:
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
        rest = [batch["input_ids"].tolist() for batch in iterator]
    with Loader(data, **options, chat_template_kwargs=given) as loader:
        loader.load_state_dict(state)
        assert [batch["input_ids"].tolist() for batch in loader] == rest
    with (
        pytest.raises(AthanorError, match="tokenizer"),
        Loader(data, **options, chat_template_kwargs={"today": "2 May"}) as loader,
    ):
        loader.load_state_dict(state)
