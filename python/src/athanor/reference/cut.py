"""The index of a view whose samples are not its records: shards of tokens, cut (docs/reference/formats.md, "Samples").

>>> rule = sample_rule(index, None)
>>> samples, cuts = cut_index(index, rule, 512)     # an index that counts samples where `index` counts records
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..errors import error
from .index import RUN_BLOCKS, Index, Shard, Table
from .tokens import Cut, Tokens

RULES = ("record", "stream", "document")


def sample_rule(index: Index, wanted: str | None) -> str:
    """The rule of a view. Raises ATH_SAMPLE_RULE for one that the data's format does not have."""
    if not index.tokens:
        allowed = ["record"]
    elif all(tokens.documents is not None for tokens in index.tokens.values()):
        allowed = ["document", "stream"]
    else:
        allowed = ["stream"]
    if wanted is not None and wanted not in allowed:
        raise error(
            "ATH_SAMPLE_RULE",
            f'sample_rule "{wanted}" does not go with this data, which has {" or ".join(allowed)}',
            file=index.name,
            remedy="leave sample_rule out, or see docs/reference/formats.md",
        )
    return wanted or allowed[0]


def cut_index(index: Index, rule: str, length: int) -> tuple[Index, dict[int, Cut]]:
    """(the same shards with samples in place of records, how each one of tokens is cut)."""
    if not index.tokens:
        return index, {}
    cuts = {number: Cut(tokens, rule, length) for number, tokens in index.tokens.items()}
    rows: list[Shard] = []
    tables: dict[int, Table] = {}
    for number, shard in enumerate(index.shards):
        row, tables[number] = _in_samples(shard, index.tokens[number], cuts[number])
        rows.append(row)
    return Index(index.root, index.index_dir, rows, index.fields, index.fingerprint, tables, index.tokens), cuts


def _in_samples(shard: Shard, tokens: Tokens, cut: Cut) -> tuple[Shard, Table]:
    """A sample belongs to the block in which its first token lies."""
    borders = cut.before(tokens.blocks())
    counts = np.diff(borders)
    none = np.zeros(0, np.int64)  # tokens are found by arithmetic: no segments, no restarts
    return replace(
        shard,
        records=cut.samples,
        largest_block=int(counts.max(initial=0)),
        run_records=[int(counts[run : run + RUN_BLOCKS].sum()) for run in range(0, len(counts), RUN_BLOCKS)],
    ), Table(borders, none, none, none, none)
