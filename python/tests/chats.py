"""Conversations for the tests of chats, a tokenizer with the tokens of the templates, and what our renderer makes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from conftest import ROOT

SPECIAL = ["<|im_start|>", "<|im_end|>", "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"]
PLAIN = ["<｜User｜>", "<｜Assistant｜>", "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>"]
PLAIN += ["</tool_response>", "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"]

Messages = list[dict[str, Any]]


def turn(role: str, content: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def call(arguments: Any) -> list[dict[str, Any]]:
    return [{"type": "function", "id": "c12345678", "function": {"name": "weather", "arguments": arguments}}]


ARGUMENTS = {"city": "Kraków", "t": 1.0, "n": 12345678901234567890, "deep": {"a": [1, None, True, 2.5e-7, []]}}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "x": {"default": 1.0}}}}]
CHATS: list[tuple[Messages, list[Any] | None]] = [
    ([turn("user", "hi"), turn("assistant", "hello")], None),
    ([turn("system", "be nice"), turn("user", "hi  "), turn("assistant", "  yes\n"), turn("user", "?")], None),
    ([turn("user", "1"), turn("assistant", "no 你好 🙂 x"), turn("user", "2"), turn("assistant", "e\u0301🙂")], None),
    ([turn("user", "a"), turn("assistant", "<think>\nwell\n</think>\n\nso"), turn("user", "b")], None),
    ([turn("user", "a"), turn("assistant", "<think>x</think>y"), turn("user", "b"), turn("assistant", "z")], None),
    ([turn("user", "\t x \u2003"), turn("assistant", "\u0085y\x1f 'r' \"q\" \\n <b>")], None),
    (
        [
            turn("system", "sys"),
            turn("user", "weather?"),
            turn("assistant", "", tool_calls=call(ARGUMENTS)),
            turn("tool", "sunny", name="weather"),
            turn("assistant", "It is sunny"),
        ],
        TOOLS,
    ),
]


def write_tokenizer(path: Path) -> Path:
    """A tokenizer with the tokens that the templates write."""
    body = json.loads((ROOT / "test/fixtures/tokenizer/deepseek/tokenizer.json").read_text(encoding="utf-8"))
    known = {entry["content"] for entry in body["added_tokens"]}
    number = max([*body["model"]["vocab"].values(), *(entry["id"] for entry in body["added_tokens"])]) + 1
    entry = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    for content in [token for token in SPECIAL + PLAIN if token not in known]:
        body["added_tokens"].append(entry | {"id": number, "content": content, "special": content in SPECIAL})
        number += 1
    (path / "tokenizer.json").write_text(json.dumps(body, ensure_ascii=False), encoding="utf-8")
    config = {"bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<｜end▁of▁sentence｜>"}
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    (path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return path


def ours(folder: Path, template: str, chats: list[tuple[Messages, Any]], special: bool = False) -> list[dict[str, Any]]:
    return ours_each(folder, [template], chats, special)[0]


def ours_each(
    folder: Path, templates: list[str], chats: list[tuple[Messages, Any]], special: bool = False, options: str = "{}"
) -> list[list[dict[str, Any]]]:
    """What each template makes of each chat."""
    texts = [[json.dumps(messages), None if tools is None else json.dumps(tools)] for messages, tools in chats]
    case = {"file": str(folder / "tokenizer.json"), "options": options, "parseSpecial": special, "chats": texts}
    command = ["node", str(ROOT / "dist/test/tokenizer/chats.js")]
    asked = json.dumps([case | {"template": template} for template in templates])
    done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found: list[list[dict[str, Any]]] = json.loads(done.stdout)
    assert [len(answers) for answers in found] == [len(chats)] * len(templates)
    return found
