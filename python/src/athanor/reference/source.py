"""One source of a view: its index, and its samples in the columns that all sources of the view share.

>>> indexes = {"web": open_index("/data/web", None, quarantine)}
>>> columns = shared_columns(indexes, what)
>>> source = Source("web", indexes["web"], columns, what, quarantine)
>>> source.fingerprint, source.totals
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Union

from ..errors import error
from .columns import MASK, Column, Rows, columns_of
from .cut import cut_index, sample_rule
from .index import Index, extents, stored_index, view_fingerprint
from .resolve import Totals
from .samples import Samples
from .scan import merged_fields, scan_all

Quarantine = Union[dict[str, Any], None]


class Source:
    """`index`: counts records. `view`, `quarantine`: the hello's."""

    def __init__(
        self, name: str, index: Index, columns: list[Column], view: dict[str, Any], quarantine: Quarantine
    ) -> None:
        rule = sample_rule(index, view.get("sample_rule"))
        self.name = name
        self.index, cuts = cut_index(index, rule, view["max_length"])
        names = [column.name for column in columns]
        self.fingerprint = view_fingerprint(index.fingerprint, names, view["max_length"], rule)
        self.totals = self._totals(columns)
        self._samples = Samples(name, self.index, cuts, columns, view["strict"], quarantine)
        self._records, self._shared = index, (columns, view, quarantine)

    @cached_property
    def past(self) -> dict[str, Source]:
        """What it was before shards were appended, the newest first, by fingerprint."""
        sources = [Source(self.name, index, *self._shared) for index in self._records.past_sets()]
        return {source.fingerprint: source for source in sources}

    def extents(self, blocks: int) -> list[int]:
        return extents(self.index, blocks)

    def read(self, pieces: Iterable[tuple[int, int]]) -> Rows:
        """Runs (first in file order, how many) of samples."""
        return self._samples.read(pieces)

    def close(self) -> None:
        self._samples.close()
        for source in self.past.values():
            source.close()

    def _totals(self, columns: list[Column]) -> Totals:
        shards = self.index.shards
        return Totals(
            samples=self.index.records,
            bytes=self.index.bytes,
            blocks=sum(1 if shard.is_stream and shard.records > 0 else shard.blocks for shard in shards),
            largest_block=max((shard.largest_block for shard in shards), default=0),
            row_bytes=sum(column.width * 4 for column in columns),
            streams=any(shard.is_stream and shard.records > 0 for shard in shards),
            tokens=sum(shard.tokens for shard in shards),
            records=max(self.index.records, 1),
        )


def open_index(path: str, index_dir: str | None, quarantine: Quarantine) -> Index:
    """The index beside the data, or one made in memory."""
    found, index = stored_index(path, index_dir)
    keep = quarantine is not None and quarantine["on_corrupt"] == "replace"
    return scan_all(found, path, keep) if index is None else index


def shared_columns(indexes: Mapping[str, Index], view: dict[str, Any], own: Sequence[str] = ()) -> list[Column]:
    """Columns that every source has; without `columns`, none of `own`, which the loader makes.

    Raises ATH_COLUMN_UNKNOWN for one that is asked for and missing somewhere, and
    ATH_SCHEMA_CONFLICT."""
    fields = merged_fields([(name, index.root, index.fields) for name, index in indexes.items()])
    for name, index in indexes.items():
        have = {field["name"] for field in index.fields}
        missing = [field["name"] for field in fields if field["name"] not in have]
        for column in view["columns"] or []:
            if column in missing and column != MASK:
                raise error(
                    "ATH_COLUMN_UNKNOWN",
                    f"column {column} is not in source {name}",
                    file=index.name,
                    remedy="all sources of a mixture deliver the same columns",
                )
        fields = [field for field in fields if field["name"] in have]
    return columns_of(fields, view, own, ", ".join(index.name for index in indexes.values()))
