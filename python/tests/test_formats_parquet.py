"""Parquet: random tables of pyarrow come out of `athanor cat` value by value; a Loader over Parquet delivers what it
delivers of the same rows as TFRecord; and what went wrong is said."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from athanor.errors import AthanorError
from athanor.numpy import Loader
from conftest import athanor
from format_feed import equal, steps_of
from tfrecord_writer import write as write_tfrecord

pa = pytest.importorskip("pyarrow", reason="skipped: pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet")

FILES = 48


def shown(value: Any) -> Any:
    """As `cat` prints it: docs/reference/formats.md."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**53 else str(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return {"float": "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    if isinstance(value, datetime.datetime):
        zone = "Z" if value.tzinfo else ""
        return value.strftime("%Y-%m-%dT%H:%M:%S.%f") + zone
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, dict):
        return {name: shown(member) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [shown(item) for item in value]
    raise TypeError(type(value))


def scalar(r: random.Random) -> tuple[Any, Any]:
    """A type and a maker of its values."""
    words = ["", "coal", "furnace" * r.randrange(9), "Glut ", "\u2028\N{FIRE}", "x" * r.randrange(400)]
    span = r.choice([1, 7, 100, 2**15, 2**31 - 1, 2**62])

    def integers(bits: int, signed: bool) -> Any:
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        return lambda: min(
            high, max(low, r.choice([r.randint(-span, span), r.randint(low, high)][: r.choice([1, 1, 2])]))
        )

    return r.choice(
        [
            (pa.int8(), integers(8, True)),
            (pa.uint8(), integers(8, False)),
            (pa.int16(), integers(16, True)),
            (pa.uint16(), integers(16, False)),
            (pa.int32(), integers(32, True)),
            (pa.int32(), integers(32, True)),
            (pa.uint32(), integers(32, False)),
            (pa.int64(), integers(64, True)),
            (pa.int64(), integers(64, True)),
            (pa.uint64(), integers(64, False)),
            (pa.float32(), lambda: float(np.float32(r.choice([r.gauss(0, 1), math.inf, math.nan, 0.0])))),
            (pa.float64(), lambda: r.choice([r.gauss(0, 1), -math.inf, 1e300])),
            (pa.bool_(), lambda: r.random() < 0.6),
            (pa.string(), lambda: r.choice(words) + str(r.randrange(3))),
            (pa.string(), lambda: str(r.random())),
            (pa.binary(), lambda: r.randbytes(r.randrange(20))),
            (pa.binary(5), lambda: r.randbytes(5)),
            (pa.decimal128(9, 3), lambda: decimal.Decimal(r.randint(-(10**9) + 1, 10**9 - 1)).scaleb(-3)),
            (pa.decimal128(30, 7), lambda: decimal.Decimal(r.randint(-(10**20), 10**20)).scaleb(-7)),
            (pa.date32(), lambda: datetime.date(1900, 1, 1) + datetime.timedelta(days=r.randrange(90000))),
            (
                pa.timestamp("us", r.choice([None, "UTC"])),
                lambda: datetime.datetime(1960, 1, 1) + datetime.timedelta(microseconds=r.randrange(10**16)),
            ),
        ]
    )


def column(r: random.Random, depth: int = 0) -> tuple[Any, Any]:
    kind = r.choice(["scalar", "scalar", "list", "list", "struct", "map"]) if depth < 3 else "scalar"
    nulls = r.choice([0, 0, 0.2, 0.9])

    def maybe(make: Any) -> Any:
        return lambda: None if r.random() < nulls else make()

    if kind == "scalar":
        of, make = scalar(r)
        return of, maybe(make)
    if kind == "list":
        of, make = column(r, depth + 1)
        longest = r.choice([1, 4, 30])
        return pa.list_(of), maybe(lambda: [make() for _ in range(r.randrange(longest + 1))])
    if kind == "struct":
        members = {name: column(r, depth + 1) for name in "ab"[: r.choice([1, 2])]}
        of = pa.struct([(name, member) for name, (member, _) in members.items()])
        return of, maybe(lambda: {name: make() for name, (_, make) in members.items()})
    of, make = column(r, depth + 1)
    return pa.map_(pa.string(), of), maybe(lambda: [(f"k{i}", make()) for i in range(r.randrange(3))])


def encoding(r: random.Random, of: Any) -> str | None:
    """One that pyarrow writes for the type, if it is a plain one."""
    if pa.types.is_integer(of):
        wide = pa.types.is_int32(of) or pa.types.is_int64(of)
        return r.choice(["PLAIN", "DELTA_BINARY_PACKED", *(["BYTE_STREAM_SPLIT"] if wide else [])])
    if pa.types.is_floating(of):
        return r.choice(["PLAIN", "BYTE_STREAM_SPLIT"])
    if pa.types.is_string(of):
        return r.choice(["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"])
    return None


def random_file(path: Path, r: random.Random) -> Any:
    columns = {f"c{i}": column(r) for i in range(r.randrange(1, 6))}
    rows = r.choice([0, 1, 17, 300, 1500])
    table = pa.table({name: pa.array([make() for _ in range(rows)], of) for name, (of, make) in columns.items()})
    options: dict[str, Any] = {
        "compression": r.choice(["none", "snappy", "gzip", "brotli", "zstd", "lz4"]),
        "row_group_size": r.choice([50, 400, 10_000]),
        "data_page_size": r.choice([64, 1000, 2**20]),
        "write_batch_size": r.choice([3, 64, 1024]),
        "data_page_version": r.choice(["1.0", "2.0"]),
        "write_page_index": r.random() < 0.3,
        "write_page_checksum": r.random() < 0.3,
        "dictionary_pagesize_limit": r.choice([50, 1000, 2**20]),
        "use_compliant_nested_type": r.random() < 0.7,
    }
    encodings = {}
    for name, (of, _) in columns.items():
        if pa.types.is_list(of):
            item = "element" if options["use_compliant_nested_type"] else "item"
            found, leaf = encoding(r, of.value_type), f"{name}.list.{item}"
        else:
            found, leaf = encoding(r, of), name
        if found is not None:
            encodings[leaf] = found
    if r.random() < 0.6:
        options |= {"use_dictionary": False, "column_encoding": encodings}
    pq.write_table(table, path, **options)
    return table


@pytest.mark.parametrize("seed", [1, 2])
def test_random_tables_come_out_as_pyarrow_wrote_them(tmp_path: Path, seed: int) -> None:
    r = random.Random(seed)
    expected: list[dict[str, Any]] = []
    names = []
    for number in range(FILES):
        path = tmp_path / f"{number:03}.parquet"
        table = random_file(path, r)
        rows = table.to_pylist()
        expected += rows
        names += [f"{path.name} row {i} of {table.schema}" for i in range(len(rows))]
    ran = athanor("cat", tmp_path)
    assert ran.returncode == 0, ran.stderr
    printed = ran.stdout.rstrip("\n").split("\n")  # text may hold other line ends
    assert len(printed) == len(expected)
    for name, line, row in zip(names, printed, expected, strict=True):
        assert json.loads(line) == shown(row), name


def token_rows(first: int, count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": n,
            "input_ids": [(n * 31 + i) % 50_000 for i in range(1 + n % 90)],
            "labels": None if n % 7 == 0 else [n] * (n % 4),
        }
        for n in range(first, first + count)
    ]


def write_parquet(path: Path, rows: list[dict[str, Any]], **options: Any) -> None:
    kinds = {"id": pa.int64(), "input_ids": pa.list_(pa.int32()), "labels": pa.list_(pa.int64())}
    table = pa.table({name: pa.array([row[name] for row in rows], of) for name, of in kinds.items()})
    pq.write_table(table, path, **options)


@pytest.fixture
def sets(tmp_path: Path) -> tuple[Path, Path]:
    """The same rows twice: Parquet of many small pages and several codecs, and TFRecord."""
    ours, theirs = tmp_path / "parquet", tmp_path / "tfrecord"
    ours.mkdir()
    theirs.mkdir()
    first = 0
    for shard, (count, codec) in enumerate(((700, "zstd"), (0, "none"), (1, "snappy"), (900, "lz4"), (333, "gzip"))):
        rows = token_rows(first, count)
        version = "2.0" if shard % 2 == 0 else "1.0"
        write_parquet(
            ours / f"{shard}.parquet", rows, compression=codec, data_page_size=700, write_batch_size=16,
            row_group_size=400, data_page_version=version,
        )  # fmt: skip
        write_tfrecord(theirs / f"{shard}.tfrecord", rows)
        first += count
    return ours, theirs


VIEW: dict[str, Any] = {"batch_size": 16, "max_length": 80, "columns": ["id", "input_ids", "labels"]}


@pytest.mark.parametrize("options", [{"shuffle": "none"}, {"seed": 7}])
def test_a_loader_delivers_what_it_delivers_of_tfrecord(
    run_dir: Path, sets: tuple[Path, Path], options: dict[str, Any]
) -> None:
    assert run_dir.exists()
    ours, _ = steps_of(sets[0], **VIEW, **options)
    theirs, _ = steps_of(sets[1], **VIEW, **options)
    equal(ours, theirs)
    ids = np.concatenate([batch["id"].ravel() for batch in ours])
    assert len(set(ids.tolist())) == 1934


def test_a_run_goes_on_where_its_state_says(run_dir: Path, sets: tuple[Path, Path]) -> None:
    assert run_dir.exists()
    options = {**VIEW, "seed": 3, "shuffle_memory": 200_000}
    whole, _ = steps_of(sets[0], **options)
    head, state = steps_of(sets[0], steps=37, **options)
    tail, _ = steps_of(sets[0], state=state, **options)
    equal(head + tail, whole)


def test_shards_of_two_schemas_are_refused_by_name(run_dir: Path, tmp_path: Path) -> None:
    assert run_dir.exists()
    pq.write_table(pa.table({"input_ids": pa.array([[1, 2]], pa.list_(pa.int32()))}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"input_ids": pa.array(["one two"])}), tmp_path / "b.parquet")
    ran = athanor("index", tmp_path, "--json")
    error = json.loads(ran.stderr.splitlines()[-1])["error"]
    assert (ran.returncode, error["code"]) == (1, "ATH_SCHEMA_CONFLICT")
    for word in ("a.parquet", "bytes values", "int64 values"):
        assert word in error["message"], error
    assert error["file"].endswith("b.parquet")


def test_a_null_inside_a_list_is_an_error_of_its_record(run_dir: Path, tmp_path: Path) -> None:
    assert run_dir.exists()
    rows = [[1, 2], [3], [4, None], [5]] * 8
    good = pa.array(range(32), pa.int64())
    pq.write_table(pa.table({"id": good, "ids": pa.array(rows, pa.list_(pa.int32()))}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": good, "ids": pa.array([[1]] * 32, pa.list_(pa.int32()))}), tmp_path / "b.parquet")
    with Loader(str(tmp_path), batch_size=8, max_length=4, columns=["id"], shuffle="none") as loader:
        assert sum(len(batch["id"]) for batch in loader) == 64
    with (
        Loader(str(tmp_path), batch_size=8, max_length=4, columns=["ids"], shuffle="none") as loader,
        pytest.raises(AthanorError, match="null inside its list") as caught,
    ):
        list(loader)
    assert caught.value.code == "ATH_RECORD_MALFORMED"


def test_a_page_larger_than_what_reads_had_room_for_in_extents_of_whole_shards(run_dir: Path, tmp_path: Path) -> None:
    rows, width = 3000, 2048
    values = np.arange(rows * width, dtype=np.int64)
    other = pa.array(np.zeros(rows * width, np.int64))
    ends = pa.array(np.arange(0, rows * width + 1, width, dtype=np.int32))
    lists = {"ids": pa.array(values), "other": other}
    table = pa.table({name: pa.ListArray.from_arrays(ends, column) for name, column in lists.items()})
    pq.write_table(
        table,
        tmp_path / "a.parquet",
        data_page_size=1 << 30,
        write_batch_size=rows,
        compression="none",
        use_dictionary=False,
    )
    options: dict[str, Any] = {"batch_size": 100, "max_length": 2, "columns": ["ids"], "shuffle": "none"}
    with Loader(str(tmp_path), unit="shard", **options) as loader:
        found = [int(row[0]) for batch in loader for row in batch["ids"]]
    assert found == list(range(0, rows * width, width))
    manifest = json.loads((tmp_path / ".athanor" / "manifest.json").read_text())
    assert rows * width * 8 < manifest["largestBlock"]["ids"] < rows * width * 8 + 100_000


def test_fields_that_are_no_columns_are_named_with_the_reason(run_dir: Path, tmp_path: Path) -> None:
    assert run_dir.exists()
    one = decimal.Decimal("1.25")
    table = {
        "id": pa.array([1, 2], pa.int64()),
        "dec": pa.array([one, one], pa.decimal128(9, 2)),
        "decs": pa.array([[one], []], pa.list_(pa.decimal128(9, 2))),
        "half": pa.array(np.array([1, 2], np.float16)),
        "lists": pa.array([[[1], [2]], []], pa.list_(pa.list_(pa.int64()))),
        "words": pa.array([["a"], []], pa.list_(pa.string())),
        "map": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())),
        "late": pa.array([None, None], pa.null()),
        "__proto__": pa.array([one, one], pa.decimal128(9, 1 + 1)),
    }
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    pq.write_table(pa.table({**table, "late": pa.array([5, 6], pa.int64())}), tmp_path / "b.parquet")
    inspected = athanor("inspect", tmp_path)
    assert inspected.returncode == 0
    said = inspected.stdout
    left = {
        "dec": "holds decimals of scale 2",
        "decs": "holds lists of decimals of scale 2",
        "half": "holds float16 numbers",
        "lists": "holds lists of lists of numbers",
        "words": "holds lists of text",
        "map": "holds maps",
        "__proto__": "holds decimals of scale 2",
    }
    assert sorted(line for line in said.splitlines() if line.startswith("no column")) == sorted(
        f"no column: {name} {why}" for name, why in left.items()
    )
    options: dict[str, Any] = {"batch_size": 2, "max_length": 4, "shuffle": "none"}
    with (
        pytest.raises(AthanorError, match="field dec is no column: it holds decimals of scale 2") as caught,
        Loader(str(tmp_path), columns=["dec"], **options) as loader,
    ):
        next(iter(loader))
    assert caught.value.code == "ATH_COLUMN_UNKNOWN"
    # Nulls of one shard leave the other's column what it is.
    assert any(line.split()[:2] == ["late", "int64"] for line in said.splitlines())
