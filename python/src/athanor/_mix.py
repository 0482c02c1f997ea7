"""Data mix: several sources, their weights, and phases with other weights. From a YAML or JSON file, or the same as a
dict (docs/reference/data-mix.schema.json, docs/guides/mixtures.md).

    version: 1
    weights_by: samples             # or tokens
    sources:
      web:  {path: web, weight: 0.7}              # relative to the folder of this file
      code: {path: /mnt/lustre/code, weight: 0.3, index_dir: /home/me/index/code}
    phases:
      - after_tokens: 2_000_000_000
        weights: {web: 0.5, code: 0.5}

Whatever is wrong is a ValueError that names the file and the key. What weighs nothing now (`weight: 0`) may join later.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, Union

Where = Union[str, "os.PathLike[str]"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_BY = ("samples", "tokens")
_WEIGHT_SUM = 65536  # the order's whole weights
_EXPONENT = re.compile(r"(\d+)(\.\d*)?[eE]([+-]?)(\d+)")


class MixSource(NamedTuple):
    name: str
    path: str
    index_dir: str | None


class MixPhase(NamedTuple):
    """`after`: so many samples or, by `tokens`, tokens of the whole job. `weights`: one a source."""

    after: int
    tokens: bool
    weights: tuple[float, ...]


class Mix(NamedTuple):
    """A data mix, checked. Phases of one kind ascend; the first is that of the beginning."""

    where: str
    sources: tuple[MixSource, ...]
    by: str
    phases: tuple[MixPhase, ...]

    def request(self, max_length: int) -> dict[str, Any]:
        """The `mix` field of the hello. A sample counts as `max_length` tokens, whatever it holds."""
        phases: list[dict[str, Any]] = []
        for number, phase in enumerate(self.phases):
            begin = -(-phase.after // max_length) if phase.tokens else phase.after
            if phases and begin <= phases[-1]["from"]:
                raise ValueError(
                    f"{self.where}: phases[{number - 1}] must begin behind the one before it, got sample {begin} "
                    f"behind sample {phases[-1]['from']} (a sample counts as max_length = {max_length} tokens)"
                )
            phases.append({"from": begin, "weights": list(phase.weights)})
        return {"sources": [source._asdict() for source in self.sources], "by": self.by, "phases": phases}


def mix_of(given: Where | Mapping[str, Any] | Mix) -> Mix:
    """A mix from a path, from a dict (its relative paths count from the working directory), or as it is."""
    if isinstance(given, Mix):
        return given
    if isinstance(given, Mapping):
        return _Reader("mix", os.getcwd()).mix({"version": 1, **given})
    if not isinstance(given, (str, os.PathLike)):
        raise ValueError(f"mix must be the path of a data-mix file or a dict, got {given!r}")
    path = os.path.abspath(given)
    where = f"data-mix file {path}"
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{where} must be readable text, got {error}") from error
    content = _json(where, text) if path.endswith(".json") else _yaml(where, text)
    return _Reader(where, os.path.dirname(path)).mix(content)


def _json(where: str, text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=lambda pairs: _once(where, pairs))
    except json.JSONDecodeError as error:
        raise ValueError(f"{where} must be JSON, got {error}") from error


def _yaml(where: str, text: str) -> Any:
    try:
        import yaml  # type: ignore[import-untyped, unused-ignore]
    except ImportError as error:
        if text.lstrip().startswith("{"):
            return _json(where, text)
        raise ValueError(
            f"{where}: YAML needs PyYAML, which is not installed: `pip install pyyaml`, or write the mix as JSON"
        ) from error

    class Loader(yaml.SafeLoader):  # type: ignore[misc, unused-ignore]
        """PyYAML lets the last of equal keys win: a source would be gone without a word."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            for key in keys:
                if key.tag not in ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"):
                    raise ValueError(
                        f'{where}: the name in line {key.start_mark.line + 1} must be in quotes ("{key.value}"), '
                        f"got {key.value}, which YAML reads as {key.tag.rpartition(':')[2]}"
                    )
            _once(where, [(key.value, None) for key in keys])
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(text, Loader)
    except yaml.YAMLError as error:
        raise ValueError(f"{where} must be YAML, got {error}") from error


def _once(where: str, pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{where}: {key} must stand once, got it twice")
        found[key] = value
    return found


class _Reader:
    def __init__(self, where: str, folder: str) -> None:
        self._where = where
        self._folder = folder

    def mix(self, content: Any) -> Mix:
        top = self._mapping("", content, {"version", "sources"}, {"weights_by", "phases"})
        if top["version"] != 1 or isinstance(top["version"], bool):
            raise self._wrong("version", "1", top["version"])
        by = top.get("weights_by", "samples")
        if by not in _BY:
            raise self._wrong("weights_by", " or ".join(f'"{name}"' for name in _BY), by)
        named = top["sources"]
        if not isinstance(named, Mapping) or not named:
            raise self._wrong("sources", "one or more sources by name", named)
        sources, weights = [], {}
        for name, value in named.items():
            key = f"sources.{name}"
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise self._wrong(f"the name of {key}", "letters, digits, '.', '_' and '-' (100 at most)", name)
            source = self._mapping(key, value, {"path", "weight"}, {"index_dir"})
            index_dir = source.get("index_dir")
            sources.append(
                MixSource(
                    name,
                    self._path(f"{key}.path", source["path"]),
                    None if index_dir is None else self._path(f"{key}.index_dir", index_dir),
                )
            )
            weights[name] = self._weight(f"{key}.weight", source["weight"])
            for other in sources[:-1]:
                if other.path == sources[-1].path:
                    raise self._wrong(f"{key}.path", f"another one than sources.{other.name}.path", other.path)
        phases = [MixPhase(0, False, self._weights("sources", weights, by))]
        given = top.get("phases", [])
        if not isinstance(given, (list, tuple)):
            raise self._wrong("phases", "a list", given)
        for number, value in enumerate(given):
            phases.append(self._phase(f"phases[{number}]", value, phases[-1], weights, by))
        return Mix(self._where, tuple(sources), by, tuple(phases))

    def _phase(self, key: str, value: Any, before: MixPhase, names: dict[str, float], by: str) -> MixPhase:
        phase = self._mapping(key, value, {"weights"}, {"after_tokens", "after_samples"})
        units = sorted(phase.keys() & {"after_tokens", "after_samples"})
        if len(units) != 1:
            raise self._wrong(key, "given one of after_tokens and after_samples", units)
        after = phase[units[0]]
        whole = isinstance(after, float) and after.is_integer()  # 2.0e+9
        if isinstance(after, bool) or not (isinstance(after, int) or whole) or not 0 < after < 2**53:
            raise self._wrong(
                f"{key}.{units[0]}", "a whole number of at least 1, such as 2000000000" + _number_in_yaml(after), after
            )
        tokens = units[0] == "after_tokens"
        if after <= before.after and tokens == before.tokens:
            raise self._wrong(f"{key}.{units[0]}", f"more than {before.after}, that of the phase before", after)
        given = self._mapping(f"{key}.weights", phase["weights"], set(names), set())
        weights = {name: self._weight(f"{key}.weights.{name}", given[name]) for name in names}
        return MixPhase(int(after), tokens, self._weights(f"{key}.weights", weights, by))

    def _weights(self, key: str, weights: dict[str, float], by: str) -> tuple[float, ...]:
        total = sum(weights.values())
        if not total > 0:
            raise self._wrong(key, "given one weight above 0 at least", list(weights.values()))
        at = key + (".{}.weight" if key == "sources" else ".{}")
        if total * _WEIGHT_SUM == math.inf:
            most = max(weights, key=lambda name: weights[name])
            raise self._wrong(at.format(most), "smaller: the sum of the weights is too large", weights[most])
        # By tokens only the index tells what a weight comes to.
        lost = None if by == "tokens" else _lost(weights)
        if lost is not None:
            expected = f"at least 1/{_WEIGHT_SUM} of the sum of the weights ({total}), or 0"
            raise self._wrong(at.format(lost), expected, weights[lost])
        return tuple(weights.values())

    def _weight(self, key: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
            raise self._wrong(key, "a number of at least 0" + _number_in_yaml(value), value)
        return float(value)

    def _path(self, key: str, value: Any) -> str:
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        if not isinstance(value, str) or not value:
            raise self._wrong(key, "a path", value)
        return value if "://" in value else os.path.normpath(os.path.join(self._folder, value))

    def _mapping(self, key: str, value: Any, needed: set[str], allowed: set[str]) -> Mapping[str, Any]:
        at = f"{key}." if key else ""
        if not isinstance(value, Mapping):
            raise self._wrong(key or "the content", f"a mapping with {', '.join(sorted(needed))}", value)
        for name in value:
            if name not in needed and name not in allowed:
                known = ", ".join(sorted(needed | allowed))
                raise ValueError(f"{self._where}: {at}{name} must be one of {known}, got an unknown key")
        for name in sorted(needed - set(value)):
            raise ValueError(f"{self._where}: {at}{name} must be given, got none")
        return value

    def _wrong(self, key: str, expected: str, found: object) -> ValueError:
        return ValueError(f"{self._where}: {key} must be {expected}, got {found!r}")


def _lost(weights: dict[str, float]) -> str | None:
    """The source that the order would refuse, because its weight comes to 0 of 65536."""
    # If one is lost, so is the least one.
    least = min((name for name in weights if weights[name] > 0), key=lambda name: weights[name])
    if weights[least] * _WEIGHT_SUM / sum(weights.values()) >= 1:
        return None
    from .errors import AthanorError
    from .reference.mixture import whole_weights  # costs the import of much that only this needs

    try:
        whole_weights(list(weights.values()))
    except AthanorError:
        return least
    return None


def _number_in_yaml(value: object) -> str:
    """What to write for an exponent that YAML 1.1 takes for text: it wants a point and a sign."""
    found = _EXPONENT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return ""
    plain = repr(float(found[0]))
    short = (
        plain if "e" not in plain and len(plain) < 8 else f"{found[1]}{found[2] or '.0'}e{found[3] or '+'}{found[4]}"
    )
    return f" (this is text, in YAML without quotes too: write {short})"
