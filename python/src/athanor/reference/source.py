"""One source of a view: its index, columns and samples.

>>> source = Source("data", "/data", None, what)
>>> source.fingerprint, source.totals
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from ..errors import AthanorError
from .columns import Column, Rows, columns_of
from .cut import cut_index, sample_rule
from .index import extents, stored_index, view_fingerprint
from .resolve import Totals
from .samples import Samples
from .scan import scan_all


class Source:
    """`view`, `quarantine`: the hello's, for what all sources of a run share."""

    def __init__(
        self, name: str, path: str, index_dir: str | None, view: dict[str, Any], quarantine: dict[str, Any] | None
    ) -> None:
        found, index = stored_index(path, index_dir)
        keep = quarantine is not None and quarantine["on_corrupt"] == "replace"
        records = scan_all(found, path, keep) if index is None else index
        rule = sample_rule(records, view.get("sample_rule"))
        self.name = name
        self.index, cuts = cut_index(records, rule, view["max_length"])
        self.columns = columns_of(self.index.fields, view, self.index.root)
        names = [column.name for column in self.columns]
        self.fingerprint = view_fingerprint(self.index.fingerprint, names, view["max_length"], rule)
        self._samples = Samples(name, self.index, cuts, self.columns, view["strict"], quarantine)

    @cached_property
    def totals(self) -> Totals:
        shards = self.index.shards
        return Totals(
            samples=self.index.records,
            bytes=self.index.bytes,
            blocks=sum(1 if shard.is_stream and shard.records > 0 else shard.blocks for shard in shards),
            largest_block=max(shard.largest_block for shard in shards),
            row_bytes=sum(column.width * 4 for column in self.columns),
            streams=any(shard.is_stream and shard.records > 0 for shard in shards),
            tokens=sum(shard.tokens for shard in shards),
        )

    def extents(self, blocks: int) -> list[int]:
        return extents(self.index, blocks)

    def read(self, pieces: Iterable[tuple[int, int]]) -> Rows:
        """Runs (first in file order, how many) of samples."""
        return self._samples.read(pieces)

    def close(self) -> None:
        self._samples.close()


def shared_columns(sources: Sequence[Source]) -> list[Column]:
    """The columns that every source delivers alike. Raises ATH_SCHEMA_CONFLICT."""
    first = sources[0]
    for other in sources[1:]:
        for name in sorted({column.name for column in (*first.columns, *other.columns)}):
            mine, theirs = (
                next((column.delivered for column in source.columns if column.name == name), "nothing")
                for source in (first, other)
            )
            if mine != theirs:
                raise AthanorError(
                    "ATH_SCHEMA_CONFLICT",
                    f'column "{name}" is {theirs} in source {other.name} and {mine} in source {first.name}',
                    file=other.index.root,
                    remedy="the sources of a mixture deliver the same columns: name them with columns=",
                )
    return first.columns
