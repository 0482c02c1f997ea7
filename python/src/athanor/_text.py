"""Text on the fly: the tokenizer that the agent is to use, and padding to the longest row of a batch."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from . import _arguments

_AROUND = {True: "template", False: "none", "bos": "bos", "eos": "eos", "both": "both"}
_CUT = ("input_ids", "attention_mask", "loss_mask")


def tokenizer_request(
    tokenizer: Any,
    mode: str,
    text_column: str | None,
    truncation_side: str,
    add_special_tokens: bool | str,
    parse_special: bool,
    messages_column: str | None = None,
    tools_column: str | None = None,
    chat_template: str | os.PathLike[str] | None = None,
    chat_template_kwargs: Mapping[str, Any] | None = None,
) -> dict[str, Any] | None:
    """The `tokenizer` field of the hello's view."""
    _arguments.one_of("truncation_side", truncation_side, ("right", "left"))
    _arguments.flags(parse_special=parse_special)
    if not isinstance(add_special_tokens, (bool, str)) or add_special_tokens not in _AROUND:
        raise ValueError(
            f"add_special_tokens must be one of True, False, 'bos', 'eos', 'both', got {add_special_tokens!r}"
        )
    if tokenizer is None:
        if text_column is not None or truncation_side != "right" or add_special_tokens is not True or parse_special:
            raise ValueError(
                "tokenizer must be given with text_column, truncation_side, add_special_tokens or parse_special, "
                "got none"
            )
        if any(option is not None for option in (messages_column, tools_column, chat_template, chat_template_kwargs)):
            raise ValueError("tokenizer must be given with the options of chats, got none")
        return None
    if text_column is not None and messages_column is not None:
        raise ValueError("one of text_column and messages_column must be left out, got both")
    if mode == "none":
        raise ValueError(
            f'tokenizer must be left out with agent="none", where only token ids are read, got {tokenizer!r}'
        )
    if not isinstance(tokenizer, (str, os.PathLike)):
        raise ValueError(
            "tokenizer must be the path of a tokenizer.json or of a local model folder (save_pretrained writes one), "
            f"got {type(tokenizer).__name__}"
        )
    return {
        "path": os.path.abspath(tokenizer),
        "text_column": text_column,
        "truncation_side": truncation_side,
        "special_tokens": _AROUND[add_special_tokens],
        "parse_special": parse_special,
        "chat": {
            "messages_column": messages_column,
            "tools_column": tools_column,
            "template": _template(chat_template),
            "options": _options(chat_template_kwargs),
        },
    }


def _template(chat_template: str | os.PathLike[str] | None) -> str | None:
    """A name of one of the tokenizer's templates, or the path of a file."""
    if chat_template is None:
        return None
    name = os.fspath(chat_template)
    if "{%" in name or "{{" in name:
        raise ValueError("chat_template must be a template's name or the path of a file that holds one, got its text")
    return os.path.abspath(name) if os.sep in name or name.endswith(".jinja") else name


def _options(kwargs: Mapping[str, Any] | None) -> str:
    try:
        return json.dumps(dict(kwargs or {}), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"chat_template_kwargs must be a dict of JSON values, got {kwargs!r}") from error


def text_options(request: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a loader that make this request."""
    around = {value: key for key, value in _AROUND.items()}
    chat = request["chat"]
    return {
        "tokenizer": request["path"],
        "text_column": request["text_column"],
        "truncation_side": request["truncation_side"],
        "add_special_tokens": around[request["special_tokens"]],
        "parse_special": request["parse_special"],
        "messages_column": chat["messages_column"],
        "tools_column": chat["tools_column"],
        "chat_template": chat["template"],
        "chat_template_kwargs": json.loads(chat["options"]) or None,
    }


class Padding:
    """How wide the batches of a loader are: `max_length`, or as wide as the longest row needs."""

    def __init__(self, padding: str, pad_to_multiple_of: int | None, max_length: int, cp_size: int) -> None:
        _arguments.one_of("padding", padding, ("max_length", "longest"))
        if pad_to_multiple_of is not None:
            _arguments.at_least_one("pad_to_multiple_of", pad_to_multiple_of)
            if padding != "longest":
                raise ValueError('padding must be "longest" with pad_to_multiple_of, got "max_length"')
        if padding == "longest" and cp_size > 1:
            raise ValueError('padding must be "max_length" with context parallelism, got "longest"')
        self.options = {"padding": padding, "pad_to_multiple_of": pad_to_multiple_of}
        self.cuts = padding == "longest"
        self._multiple = pad_to_multiple_of or 1
        self._max_length = max_length

    def cut(self, batch: dict[str, Any]) -> dict[str, Any]:
        """`input_ids` and `attention_mask` as views of what they were, without columns that hold padding alone."""
        mask = batch.get("attention_mask")
        if not self.cuts or mask is None or mask.ndim < 2:
            return batch
        # Masks of the data may begin with zeros: what counts is where the last one stands.
        taken = np.flatnonzero(np.asarray(mask).any(axis=0))
        longest = int(taken[-1]) + 1 if taken.size else 0
        width = min(self._max_length, max(1, -(-longest // self._multiple)) * self._multiple)
        return {name: value[:, :width] if name in _CUT and value.ndim > 1 else value for name, value in batch.items()}
