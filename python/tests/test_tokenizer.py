"""The tokenizers of src/tokenizer against Python's `tokenizers`: random text, and every character there is."""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path
from typing import Callable

import pytest

from conftest import ROOT

tokenizers = pytest.importorskip("tokenizers", reason="skipped: tokenizers is not installed")

FIXTURES = ROOT / "test/fixtures/tokenizer"
KINDS = ["deepseek", "gpt2", "llama", "nfc", "coder", "behaviors"]
CHARACTERS = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]


def compare(cases: list[tuple[Path, bool, list[str]]]) -> None:
    """Texts of each tokenizer, special tokens in them parsed or not: the same ids."""
    asked = [{"file": str(file), "parseSpecial": special, "texts": texts} for file, special, texts in cases]
    command = ["node", str(ROOT / "dist/test/tokenizer/ids.js")]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for (file, special, texts), found in zip(cases, json.loads(done.stdout)):
        tokenizer = tokenizers.Tokenizer.from_file(str(file))
        tokenizer.encode_special_tokens = not special
        assert len(found) == len(texts) > 0
        for text, ids in zip(texts, found):
            expected = tokenizer.encode(text, add_special_tokens=False).ids
            assert ids == expected, f"{file.parent.name}, special={special}: {text!r}"


def random_texts(seed: int, count: int, added: list[str]) -> list[str]:
    draw = random.Random(seed)
    words = [
        "👨‍👩‍👧‍👦",
        "🇩🇪",
        "é",
        "e\u0301",
        "ñ",
        "ﬁ",
        "ſ",
        "K",
        "ß",
        "İ",
        "Σς",
        "ا",
        "ब्र",
        "ไทย",
        "𝟘",
        "Ⅷ",
        "²",
        "½",
        "१२",
    ]
    words += ["'s", "'S", "'ſ", "'RE", "'ll", "123", "00001", "...", "--", "def ", "http://", "<|x|>", "`", "zzz"]
    spaces = " \t\n\r\u0085\ufeff\u00a0\u2028\u2029\u3000\u200b\x0b\x0c\x1c\x1f\u180e"
    pools: list[Callable[[], str]] = [
        lambda: chr(draw.randrange(0x20, 0x7F)),
        lambda: draw.choice(spaces),
        lambda: chr(draw.randrange(0x4E00, 0xA000)),
        lambda: chr(draw.randrange(0x3040, 0x3100)),
        lambda: chr(draw.randrange(0x20)),
        lambda: draw.choice(CHARACTERS),
        lambda: draw.choice(CHARACTERS[:0x3000]),
        lambda: draw.choice(words),
        lambda: draw.choice(added),
        lambda: draw.choice("abcdefghij0123456789 .,\n") * draw.randrange(1, 120),
    ]
    texts = []
    for _ in range(count):
        mixed = draw.sample(pools, draw.randrange(1, 6))
        texts.append("".join(draw.choice(mixed)() for _ in range(draw.randrange(60))))
    return texts


def files() -> list[Path]:
    """Ours, and DeepSeek's own where it is."""
    own = os.environ.get("ATHANOR_DEEPSEEK_TOKENIZER")
    return [FIXTURES / kind / "tokenizer.json" for kind in KINDS] + ([Path(own)] if own else [])


@pytest.mark.parametrize("seed", range(int(os.environ.get("ATHANOR_TOKENIZER_SEEDS", "2"))))
def test_random_text_has_the_same_ids(seed: int) -> None:
    cases = []
    for file in files():
        entries = json.loads(file.read_text(encoding="utf-8"))["added_tokens"]
        texts = random_texts(seed, 400, [entry["content"] for entry in entries][:40])
        cases += [(file, False, texts), (file, True, texts)]
    compare(cases)


def test_every_character_has_the_same_ids() -> None:
    # Between letters, so that a border shows.
    texts = ["a" + "b".join(CHARACTERS[start : start + 64]) for start in range(0, len(CHARACTERS), 64)]
    compare([(FIXTURES / kind / "tokenizer.json", False, texts) for kind in ["deepseek", "nfc"]])


def ranges(pattern: str) -> list[list[int]]:
    """Code points that a pattern of one character matches, by the library, as runs of all characters in order."""
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(f"(?:{pattern})+"), "removed", invert=True)
    found = split.pre_tokenize_str("".join(CHARACTERS))
    return [[ord(CHARACTERS[start]), ord(CHARACTERS[end - 1])] for _, (start, end) in found]


def test_every_property_is_that_of_the_library() -> None:
    names = ["L", "M", "N", "P", "S", "C", "Ll", "Lo", "Nd", "Han", "Arabic"]
    classes = [r"\s", r"\w", r"[^\w\s]", r"\W", r"[^\r\n\p{L}\p{P}\p{S}]", r"(?i:k|s)"]
    patterns = [rf"\p{{{name}}}" for name in names] + classes
    command = ["node", str(ROOT / "dist/test/tokenizer/ids.js"), *patterns]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for pattern, found in zip(patterns, json.loads(done.stdout)):
        assert len(found) > 0
        assert found == ranges(pattern), pattern


@pytest.mark.parametrize("form", ["NFC", "NFKD"])
def test_every_normal_form_is_that_of_the_library(tmp_path: Path, form: str) -> None:
    texts = [
        "".join(f"a{character}\u0301\u0323" for character in CHARACTERS[start : start + 64])
        for start in range(0, len(CHARACTERS), 64)
    ]
    body = json.loads((FIXTURES / "deepseek/tokenizer.json").read_text(encoding="utf-8"))
    body["normalizer"] = {"type": form}
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(body, ensure_ascii=False), encoding="utf-8")
    compare([(file, False, texts)])
