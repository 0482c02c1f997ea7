"""The index of a data set: read from `.athanor/` (docs/reference/index-format.md), or made in memory by `scan.py`."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import AthanorError
from .crc import crc32c
from .files import DataFile, Found, discover, is_known_non_data, path_bytes
from .megatron import idx_of, megatron_tokens
from .npy import npy_tokens
from .tokens import Tokens

MAGIC = b"ATHIDX01"
ENCODINGS = ("plain", "gzip", "zlib", "zstd", "zstd-frames")
RUN_BLOCKS = 64
RESTART_EVERY = 64
# Formats; the agent reads more.
READ = ("tfrecord", "npy", "megatron")
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass
class Shard:
    """A row of shards.bin. `run_records`: records of each 64 blocks. `tokens`: values of the longest int64 feature."""

    path: str
    size: int
    mtime_ns: int
    records: int
    tokens: int
    crc32c: int
    encoding: str
    blocks: int
    largest_block: int
    run_records: list[int]

    @property
    def is_stream(self) -> bool:
        return self.encoding not in ("plain", "zstd-frames")


@dataclass
class Table:
    """Blocks of one shard: block b has records [first_record[b], first_record[b + 1]) and one segment of bytes."""

    first_record: Array
    segment_offset: Array
    segment_length: Array
    restart_start: Array
    restarts: Array


class Index:
    """Shards in byte order of their paths, below `root`. `tables`, `tokens`: of shards made in memory, by number."""

    def __init__(
        self,
        root: str,
        index_dir: str,
        shards: list[Shard],
        fields: list[dict[str, Any]],
        fingerprint: str,
        tables: dict[int, Table] | None = None,
        tokens: dict[int, Tokens] | None = None,
        past: Sequence[dict[str, Any]] = (),
    ) -> None:
        self.root = root
        self.index_dir = index_dir
        self.shards = shards
        self.fields = fields
        self.fingerprint = fingerprint
        self.tokens = tokens or {}
        self.past = past
        self._tables = {} if tables is None else tables
        counts = np.array([shard.records for shard in shards], np.int64)
        self.first_sample = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])

    @property
    def records(self) -> int:
        return int(self.first_sample[-1])

    @property
    def bytes(self) -> int:
        return sum(shard.size for shard in self.shards)

    @property
    def name(self) -> str:
        """What messages call it: its one file, or its folder."""
        return self.path(0) if len(self.shards) == 1 else self.root

    def path(self, shard: int) -> str:
        return os.path.join(self.root, self.shards[shard].path)

    def past_sets(self) -> Iterator[Index]:
        """The sets that this one was before shards were appended, the newest first."""
        later: set[str] = set()
        for entry in reversed(self.past):
            later.update(entry["added"])
            shards = [shard for shard in self.shards if shard.path not in later]
            if data_fingerprint(shards) != entry["fingerprint"]:
                return
            kept = [number for number, shard in enumerate(self.shards) if shard.path not in later]
            tokens = {at: self.tokens[number] for at, number in enumerate(kept) if number in self.tokens}
            yield Index(self.root, self.index_dir, shards, self.fields, entry["fingerprint"], tokens=tokens)

    def table(self, shard: int) -> Table:
        found = self._tables.get(shard)
        if found is None:
            row = self.shards[shard]
            file = os.path.join(self.index_dir, "blocks", table_name(row))
            found, identity = read_table(file)
            if (identity["path"], identity["size"], identity["crc32c"]) != (row.path, row.size, row.crc32c):
                raise _corrupt(file, f"the table of {row.path}", f"that of {identity['path']}")
            self._tables[shard] = found
        return found


def stored_index(source: str, index_dir: str | None = None) -> tuple[Found, Index | None]:
    """The data's files, and their index if there is one. Raises ATH_INDEX_STALE, ATH_INDEX_CORRUPT, ATH_NO_SHARDS."""
    found = discover(source, index_dir)
    file = os.path.join(found.index_dir, "shards.bin")
    if not os.path.exists(file):
        return found, None
    manifest, shards = read_shards(file)
    if manifest["format"] not in READ:
        raise AthanorError(
            "ATH_FORMAT_UNSUPPORTED",
            f'is {manifest["format"]}, which agent="none" does not read: it reads {", ".join(READ)}',
            file=source,
            remedy='leave agent="none" (or ATHANOR_AGENT=none) out: the agent reads it',
        )
    command = f"run `athanor index {source}{'' if index_dir is None else f' --index-dir {index_dir}'}`"
    known = {shard.path for shard in shards} | {ignored["path"] for ignored in manifest["ignored"]}
    paths = [_shard_of(found.root, path) for path in found.paths]
    present = set(paths)
    added = next((path for path in paths if path not in known and not is_known_non_data(path)), None)
    gone = next((shard.path for shard in shards if shard.path not in present), None)
    # What is gone first: half a Megatron pair counts as a file that came, and says less.
    for path, what in (
        (gone, "this shard of the index is gone"),
        (added, "this file is not in the index: it came later"),
    ):
        if path is not None:
            raise AthanorError("ATH_INDEX_STALE", what, file=os.path.join(found.root, path), remedy=command)
    fields, past = manifest["schema"]["fields"], manifest.get("past", [])
    tokens = {number: _tokens(found.root, shard, manifest["format"]) for number, shard in enumerate(shards)}
    streams = {number: stream for number, stream in tokens.items() if stream is not None}
    index = Index(found.root, found.index_dir, shards, fields, manifest["fingerprint"], tokens=streams, past=past)
    return found, index


def _shard_of(root: str, path: str) -> str:
    """The .bin of a Megatron pair for either of its files."""
    stem, ending = os.path.splitext(path)
    return stem + ".bin" if ending == ".idx" and os.path.exists(os.path.join(root, stem + ".bin")) else path


def _tokens(root: str, shard: Shard, kind: str) -> Tokens | None:
    """Where the tokens of a shard lie, from the shard itself. Raises ATH_SHARD_CHANGED for another than was indexed."""
    if kind not in ("npy", "megatron"):
        return None
    path = os.path.join(root, shard.path)
    file = DataFile(path, (shard.size, shard.mtime_ns))
    try:
        if kind == "npy":
            return npy_tokens(file)
    finally:
        file.close()
    tokens, crc = megatron_tokens(path)
    if crc != shard.crc32c:
        raise AthanorError(
            "ATH_SHARD_CHANGED",
            "changed since it was indexed: its bytes have another CRC32C",
            file=idx_of(path),
            remedy="run `athanor index` again, or put the old file back",
        )
    return tokens


def read_shards(path: str | os.PathLike[str]) -> tuple[dict[str, Any], list[Shard]]:
    """The manifest and the rows of shards.bin. Raises ATH_INDEX_CORRUPT."""
    file = os.fspath(path)
    payload, rows, runs, path_bytes_, json_bytes = _open(file, 1)
    if len(payload) != rows * 72 + runs * 16 + path_bytes_ + json_bytes:
        raise _corrupt(file, "sections that fill it", f"{len(payload)} bytes")
    records = np.frombuffer(payload, "<f8", runs, rows * 72)
    paths_at = rows * 72 + runs * 16
    shards = []
    for row in range(rows):
        size, mtime, count, tokens, run, run_count, crc, encoding, blocks, largest, length, at = struct.unpack_from(
            "<QqQQQIIIIIIQ", payload, row * 72
        )
        name = payload[paths_at + at : paths_at + at + length].decode("utf-8", "surrogateescape")
        shards.append(
            Shard(name, size, mtime, count, tokens, crc, ENCODINGS[encoding], blocks, largest,
                  [int(n) for n in records[run : run + run_count]])
        )  # fmt: skip
    return json.loads(payload[len(payload) - json_bytes :]), shards


def table_name(shard: Shard) -> str:
    """File name of a shard's block table: by its content."""
    identity = f"{shard.path}\0{shard.size}\0{shard.crc32c}"
    return hashlib.sha256(path_bytes(identity)).hexdigest()[:16] + ".bin"


def read_table(path: str | os.PathLike[str]) -> tuple[Table, dict[str, Any]]:
    """One block table, and its JSON. Raises ATH_INDEX_CORRUPT."""
    file = os.fspath(path)
    payload, blocks, segments, restarts, json_bytes = _open(file, 2)
    columns: dict[str, Array] = {}
    at = 0
    for name, dtype, count in (
        ("first_record", "<f8", blocks + 1),
        ("tokens", "<f8", blocks),
        ("segment_offset", "<f8", segments),
        ("segment_length", "<f8", segments),
        ("segment_start", "<u4", blocks + 1),
        ("segment_file", "<u4", segments),
        ("segment_field", "<u4", segments),
        ("restart_start", "<u4", blocks + 1),
        ("restarts", "<u4", restarts),
    ):
        if at + count * int(dtype[2]) > len(payload):
            raise _corrupt(file, "sections that fill it", f"{len(payload)} bytes")
        columns[name] = np.frombuffer(payload, dtype, count, at).astype(np.int64)
        at += count * int(dtype[2])
    table = Table(
        columns["first_record"],
        columns["segment_offset"],
        columns["segment_length"],
        columns["restart_start"],
        columns["restarts"],
    )
    return table, json.loads(payload[len(payload) - json_bytes :])


def data_fingerprint(shards: Iterable[Shard]) -> str:
    hasher = hashlib.sha256()
    for shard in sorted(shards, key=lambda shard: path_bytes(shard.path)):
        hasher.update(path_bytes(f"{shard.path}\0{shard.size}\0{shard.records}\0{shard.crc32c}\n"))
    return hasher.hexdigest()[:32]


def view_fingerprint(data: str, columns: list[str], max_length: int, rule: str = "record") -> str:
    """`columns`: the delivered ones. Canonical JSON (RFC 8785): keys sorted, no spaces, UTF-8."""
    spec = {"columns": columns, "max_length": max_length, "sample_rule": rule, "tokenizer": None}
    text = json.dumps(spec, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(path_bytes(f"{data}\0{text}\n")).hexdigest()[:32]


def extents(index: Index, extent_blocks: int) -> list[int]:
    """Sample counts of extents in file order: `extent_blocks` blocks of a shard each, 0: whole shards."""
    counts: list[int] = []
    for number, shard in enumerate(index.shards):
        if extent_blocks == 0 or shard.is_stream or extent_blocks >= shard.blocks:
            counts.append(shard.records)
        elif extent_blocks >= RUN_BLOCKS:
            runs = extent_blocks // RUN_BLOCKS
            counts += [sum(shard.run_records[run : run + runs]) for run in range(0, len(shard.run_records), runs)]
        else:
            borders = index.table(number).first_record
            starts = [*range(0, shard.blocks, extent_blocks), shard.blocks]
            counts += [int(borders[b] - borders[a]) for a, b in zip(starts, starts[1:])]
    return [count for count in counts if count > 0]


def _open(file: str, kind: int) -> tuple[bytes, int, int, int, int]:
    """(payload, rows, a, b, bytes of the JSON)."""
    if kind == 2 and not os.path.exists(file):
        raise _corrupt(file, "a block table", "no file")
    opened = DataFile(file)
    raw = opened.read(0, opened.size)
    opened.close()
    if len(raw) < 64 or raw[:8] != MAGIC:
        raise _corrupt(file, "ATHIDX01", repr(raw[:8]))
    version, found_kind, length, crc, rows, a, b, json_bytes, _, header_crc = struct.unpack_from("<IIQIIQQQII", raw, 8)
    if header_crc != crc32c(raw[:60]):
        raise _corrupt(file, "a header CRC that fits", "another one")
    if (version, found_kind) != (3, kind):
        raise _corrupt(file, f"version 3, kind {kind}", f"version {version}, kind {found_kind}")
    payload = raw[64:]
    if len(payload) != length or crc32c(payload) != crc:
        raise _corrupt(file, f"{length} bytes of payload whose CRC fits", f"{len(payload)} bytes, or another CRC")
    return payload, rows, a, b, json_bytes


def _corrupt(file: str, expected: str, found: str) -> AthanorError:
    return AthanorError(
        "ATH_INDEX_CORRUPT",
        f"index file is damaged: expected {expected}, found {found}",
        file=file,
        remedy="run `athanor index --rebuild` on the data",
    )
