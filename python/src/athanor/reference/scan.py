"""An index made in memory, for data that has none: TFRecord and `.npy` are read whole, every CRC checked; of Megatron
only the .idx.

The same blocks, counts, schema and fingerprints as `athanor index`; nothing is written.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..errors import AthanorError
from .crc import crc32c
from .example import Feature, example_of
from .files import DataFile, Found, is_known_non_data, path_bytes
from .index import RESTART_EVERY, RUN_BLOCKS, Index, Shard, Table, data_fingerprint
from .inflate import PlainBytes, StreamBytes, compression
from .megatron import MAGIC as MEGATRON
from .megatron import half_pair, idx_of, megatron_tokens
from .npy import MAGIC as NPY
from .npy import npy_tokens
from .quarantine import CONTENT, walk
from .tfrecord import Batch, ByteSource, batches, begins_with_frame, check_payloads, encoding_of
from .tokens import BLOCK_BYTES, Tokens

log = logging.getLogger("athanor")

_NPY_TOKENS = 1 << 20
_KEPT_READ = 1 << 24
# Plain Python reads some 10 MB/s here, and each rank does it: 10 GB would take longer than a collective waits.
_MAX_BYTES = 10e9


class Field:
    """What the records of a shard say of one feature."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.kind = ""
        self.present = self.values = self.max_length = 0
        self.min_length = 0
        self.low: int | None = None
        self.high: int | None = None
        self.prefix = True

    @classmethod
    def of(cls, described: dict[str, Any]) -> Field:
        """What `described` gave."""
        field = cls(described["name"])
        field.kind, field.present, field.values = described["kind"], described["present"], described["values"]
        field.min_length, field.max_length = described["minLength"], described["maxLength"]
        field.prefix = described.get("prefixMask") is True
        if "min" in described:
            field.low, field.high = int(described["min"]), int(described["max"])
        return field

    def add(self, feature: Feature) -> None:
        self.kind = feature.kind
        self.min_length = feature.size if self.present == 0 else min(self.min_length, feature.size)
        self.max_length = max(self.max_length, feature.size)
        self.present += 1
        self.values += feature.size
        if feature.kind == "int64" and feature.size > 0:
            values = feature.values
            low, high = int(values.min()), int(values.max())
            self.low = low if self.low is None else min(self.low, low)
            self.high = high if self.high is None else max(self.high, high)
            ones = int(np.count_nonzero(values == 1))
            self.prefix &= bool((values[:ones] == 1).all() and (values[ones:] == 0).all())

    def merge(self, other: Field) -> None:
        """`other`: the feature in another shard; both were seen in at least one record."""
        self.min_length = min(self.min_length, other.min_length)
        self.prefix &= other.prefix
        self.present += other.present
        self.values += other.values
        self.max_length = max(self.max_length, other.max_length)
        if other.low is not None and other.high is not None:
            self.low = other.low if self.low is None else min(self.low, other.low)
            self.high = other.high if self.high is None else max(self.high, other.high)

    def described(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "name": self.name,
            "kind": self.kind,
            "present": self.present,
            "minLength": self.min_length,
            "maxLength": self.max_length,
            "values": self.values,
        }
        if self.kind == "int64":
            found["prefixMask"] = self.prefix
            if self.low is not None:
                found["min"], found["max"] = str(self.low), str(self.high)
        return found


def scan_all(found: Found, source: str, keep: bool = False) -> Index:
    """The index of a set that has none. `keep`: bad records count as records (shards are then read into memory whole).
    Raises the first fault of a shard, ATH_FORMAT_CONFLICT, and ATH_INDEX_NEEDED
    above 10 GB."""
    files = shard_files(found)
    read = sum(os.stat(os.path.join(found.root, idx_of(path) if kind == "megatron" else path)).st_size
               for path, kind in files)  # fmt: skip
    if read > _MAX_BYTES:
        raise AthanorError(
            "ATH_INDEX_NEEDED",
            f"the data has no index, and {read / 1e9:.0f} GB are too many to read at the start of a job",
            file=source,
            remedy=f"run `athanor index {source}` once before",
        )
    log.info("no index beside the data: reading %d files to make one in memory", len(files))
    shards: list[Shard] = []
    tables: dict[int, Table] = {}
    streams: dict[int, Tokens] = {}
    fields: dict[str, tuple[Field, str]] = {}
    refused: AthanorError | None = None
    first: tuple[str, str] | None = None
    for path, kind in files:
        try:
            if kind == "tfrecord":
                shard, table, seen = scan_shard(found.root, path, keep)
                tables[len(shards)] = table
            else:
                shard, streams[len(shards)], seen = scan_tokens(found.root, path, kind)
        except AthanorError as error:
            if error.code != "ATH_NOT_FORMAT" or not is_known_non_data(path):
                raise
            refused = refused or error
            continue
        first = first or (path, kind)
        if kind != first[1]:
            raise AthanorError(
                "ATH_FORMAT_CONFLICT",
                f"is {kind}, and {first[0]} is {first[1]}: the shards of a set are of one format",
                file=os.path.join(found.root, path),
                remedy="name one kind of them by a glob",
            )
        shards.append(shard)
        for field in seen:
            known, where = fields.setdefault(field.name, (field, path))
            if known.kind != field.kind:
                raise AthanorError(
                    "ATH_SCHEMA_CONFLICT",
                    f'feature "{field.name}" holds {field.kind} values here and {known.kind} values in '
                    f"{found.root}/{where}",
                    file=os.path.join(found.root, path),
                    remedy="all shards of a set share a schema: move one of the two elsewhere",
                )
            if known is not field:
                known.merge(field)
    if not shards:
        raise AthanorError(
            "ATH_NO_SHARDS",
            f"none of {len(files)} files is a shard",
            file=source,
            cause=None if refused is None else refused.what,
        )
    names = sorted(fields, key=_code_units)
    described = [fields[name][0].described() for name in names]
    return Index(found.root, found.index_dir, shards, described, data_fingerprint(shards), tables, streams)


def shard_files(found: Found) -> list[tuple[str, str]]:
    """(path, format) of each shard, in byte order of the paths: a .bin and its .idx are one, named by the .bin. What is
    of no known format counts as TFRecord, whose reader refuses it. Raises ATH_NOT_FOUND for half a pair."""
    kinds: dict[str, str] = {}
    for path in found.paths:
        stem, ending = os.path.splitext(path)
        full = os.path.join(found.root, path)
        if ending == ".idx" and os.path.exists(os.path.join(found.root, stem + ".bin")):
            kinds[stem + ".bin"] = "megatron"
        elif ending == ".bin" and os.path.exists(idx_of(full)):
            kinds[path] = "megatron"
        else:
            file = DataFile(full)
            head = file.read(0, min(12, file.size))
            is_npy = ending == ".npy" or head.startswith(NPY)
            # A .bin that is nothing else: "half a pair" helps more than "not TFRecord".
            is_bin = ending == ".bin" and not (is_npy or begins_with_frame(head) or compression(head))
            if (is_bin and head) or (ending == ".idx" and head.startswith(MEGATRON)):
                raise half_pair(full)
            kinds[path] = "npy" if is_npy else "tfrecord"
    return sorted(kinds.items(), key=lambda item: path_bytes(item[0]))


def scan_tokens(root: str, path: str, kind: str) -> tuple[Shard, Tokens, list[Field]]:
    """A shard of tokens. The counts of its blocks follow from the view (`cut_index`)."""
    name = os.path.join(root, path)
    if kind == "megatron":
        tokens, crc = megatron_tokens(name)
        low, high = 0, int(np.iinfo(tokens.dtype).max)  # the .bin is not read
    else:
        file = DataFile(name)
        tokens = npy_tokens(file)
        crc, low, high = _read_npy(file, tokens)
        file.close()
    field = Field("input_ids")
    field.kind, field.present, field.values, field.max_length = "int64", tokens.records, tokens.count, tokens.count
    field.prefix = False
    if tokens.count > 0:
        field.low, field.high = low, high
    size, mtime = tokens.version
    blocks = len(tokens.blocks()) - 1
    return Shard(path, size, mtime, tokens.records, tokens.count, crc, "plain", blocks, 0, []), tokens, [field]


def _read_npy(file: DataFile, tokens: Tokens) -> tuple[int, int, int]:
    """(CRC32C of all bytes, least and largest token)."""
    crc = crc32c(file.read(0, tokens.offset))
    lows, highs = [], []
    for start in range(0, tokens.count, _NPY_TOKENS):
        raw = file.read(tokens.offset + start * tokens.dtype.itemsize,
                        min(_NPY_TOKENS, tokens.count - start) * tokens.dtype.itemsize)  # fmt: skip
        crc = crc32c(raw, crc)
        values = np.frombuffer(raw, tokens.dtype)
        tokens.check(values, start)
        lows.append(int(values.min()))
        highs.append(int(values.max()))
    return crc, min(lows, default=0), max(highs, default=0)


def scan_shard(root: str, path: str, keep: bool = False) -> tuple[Shard, Table, list[Field]]:
    file = DataFile(os.path.join(root, path))
    encoding = encoding_of(file)
    crc = 0

    def seen(data: bytes) -> None:
        nonlocal crc
        crc = crc32c(data, crc)

    source = PlainBytes(file, 0, file.size, seen) if encoding == "plain" else StreamBytes(file, encoding, seen)
    first_record: list[int] = []
    offsets: list[int] = []
    restart_start: list[int] = []
    restarts: list[int] = []
    fields: dict[bytes, Field] = {}
    block = -1
    records = end = 0
    for batch, bad in _kept(source, file.path) if keep else ((batch, frozenset[int]()) for batch in batches(source)):
        count = len(batch.starts)
        good, fault = (count, None) if keep else check_payloads(file.path, batch, 0, count)
        for i in range(good):
            offset = batch.record_offset(i)
            if offset // BLOCK_BYTES != block:
                block = offset // BLOCK_BYTES
                first_record.append(records)
                offsets.append(offset)
                restart_start.append(len(restarts))
            if (records - first_record[-1]) % RESTART_EVERY == 0:
                restarts.append(offset - offsets[-1])
            try:
                if i not in bad:
                    _fold(file.path, batch, i, fields)
            except AthanorError as error:
                if not keep or error.code not in CONTENT:
                    raise
            records += 1
            end = offset + int(batch.lengths[i]) + 16
        if fault is not None:
            raise fault
    borders = np.array([*first_record, records], np.int64)
    counts = np.diff(borders)
    held = [field for field in fields.values() if field.kind]
    for field in held:
        field.prefix &= field.values > 0
    shard = Shard(
        path=path,
        size=file.size,
        mtime_ns=file.mtime_ns,
        records=records,
        tokens=max((field.values for field in held if field.kind == "int64"), default=0),
        crc32c=crc,
        encoding=encoding,
        blocks=len(offsets),
        largest_block=int(counts.max(initial=0)),
        run_records=[int(counts[run : run + RUN_BLOCKS].sum()) for run in range(0, len(counts), RUN_BLOCKS)],
    )
    table = Table(
        first_record=borders,
        segment_offset=np.array(offsets, np.int64),
        segment_length=np.diff(np.array([*offsets, end] if offsets else [0], np.int64)),
        restart_start=np.array([*restart_start, len(restarts)], np.int64),
        restarts=np.array(restarts, np.int64),
    )
    return shard, table, held


def _kept(source: ByteSource, file: str) -> Iterator[tuple[Batch, frozenset[int]]]:
    """All records of a shard at once, each damaged piece as one, and which are damaged."""
    data = b"".join(iter(lambda: source.read(_KEPT_READ), b""))
    pieces = walk(data, 0, len(data))
    starts = np.array([piece.begin + 12 for piece in pieces], np.int64)
    lengths = np.array([piece.end - piece.begin - 16 for piece in pieces], np.int64)
    batch = Batch(0, 0, np.frombuffer(data, np.uint8), starts, lengths)
    bad = {i for i, piece in enumerate(pieces) if piece.damaged}
    bad |= {i for i in range(len(pieces)) if i not in bad and check_payloads(file, batch, i, i + 1)[1] is not None}
    yield batch, frozenset(bad)


def _fold(file: str, batch: Batch, i: int, fields: dict[bytes, Field]) -> None:
    features = example_of(file, batch, i)
    for name in features:
        if name not in fields:
            try:
                fields[name] = Field(name.decode())
            except UnicodeDecodeError as error:
                raise AthanorError(
                    "ATH_RECORD_MALFORMED",
                    "payload is no tf.train.Example: the name of a feature is not UTF-8",
                    file=file,
                    record=batch.record + i,
                    byte_offset=batch.record_offset(i),
                    remedy="write the shard again with tf.train.Example records",
                ) from error
    for name, field in fields.items():
        feature = features.get(name)
        if feature is not None and field.kind not in ("", feature.kind):
            raise AthanorError(
                "ATH_FEATURE_KIND",
                f'feature "{field.name}" holds a list of {feature.kind}, expected {field.kind}',
                file=file,
                record=batch.record + i,
                byte_offset=batch.record_offset(i),
                remedy="write the feature with one kind in all records",
            )
    for name, feature in features.items():
        if feature is not None:
            fields[name].add(feature)


def merged_fields(described: list[tuple[str, str, list[dict[str, Any]]]]) -> list[dict[str, Any]]:
    """The schema of several sets: (name, root, fields) each. Raises ATH_SCHEMA_CONFLICT."""
    if len(described) == 1:
        return described[0][2]
    merged: dict[str, tuple[Field, str]] = {}
    for source, root, fields in described:
        for part in fields:
            name = part["name"]
            field, where = merged.setdefault(name, (Field.of(part), source))
            if field.kind != part["kind"]:
                raise AthanorError(
                    "ATH_SCHEMA_CONFLICT",
                    f'feature "{name}" holds {part["kind"]} values in source {source}, {field.kind} values in {where}',
                    file=root,
                    remedy="the sources of a mixture share a schema: leave one of the two out",
                )
            if where != source:
                field.merge(Field.of(part))
    return [merged[name][0].described() for name in sorted(merged, key=_code_units)]


def _code_units(name: str) -> bytes:
    """JavaScript's order of strings."""
    return name.encode("utf-16-be")
