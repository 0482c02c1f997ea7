"""From options to numbers: how a source is read (docs/reference/order.md, "From options to numbers").

>>> resolve(Totals(samples=100, bytes=10_000, blocks=1, largest_block=100, row_bytes=4096), Options())
How(shuffle='global', lanes=1, window=100, extent=1)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ..errors import error

GIB = 1 << 30
_MAX_LANES = 64
_MAX_EXTENT_BYTES = 256 << 20
_RUN_BLOCKS = 64  # larger extents are whole runs of so many blocks


@dataclass(frozen=True)
class Totals:
    """What of a view decides the order's numbers. `row_bytes`: nominal, width × 4 of each delivered column. `tokens`,
    `records`: as the index counts them, for weights by tokens."""

    samples: int
    bytes: int
    blocks: int
    largest_block: int
    row_bytes: int
    streams: bool = False
    tokens: int = 0
    records: int = 1


@dataclass(frozen=True)
class Options:
    """The job's wishes. `shuffle_memory`: bytes; None: the order's own choice."""

    shuffle: str = "window"
    shuffle_memory: int = GIB
    lanes: int | None = None
    window: int | None = None
    unit: str = "extent"


@dataclass(frozen=True)
class How:
    """How a source is read; a state holds it. `window`: samples; `extent`: blocks, 0 = whole shards."""

    shuffle: str
    lanes: int
    window: int
    extent: int


def is_held(totals: Totals, how: How, options: Options) -> bool:
    """Whether each node may keep the whole view, decoded once: no part of the order."""
    return how.shuffle == "global" and _fits(totals, options)


def _fits(totals: Totals, options: Options) -> bool:
    return totals.samples * totals.row_bytes <= options.shuffle_memory


def refuse_streams(totals: Totals, shuffle: str, held: bool) -> None:
    if shuffle == "global" and not held and totals.streams:
        raise error(
            "ATH_ORDER_STREAM",
            'shuffle="global" cannot read gzip or zlib shards at random, and the view does not fit shuffle_memory: '
            f"{totals.samples} samples × {totals.row_bytes} bytes",
            remedy='use shuffle="window", more shuffle_memory, or uncompressed shards',
        )


def share(options: Options, weight: int) -> Options:
    """The options of a source of this weight of 65536."""
    return replace(options, shuffle_memory=options.shuffle_memory * weight // 65536)


def default_lanes(totals: Totals) -> int:
    most = max(1, min(_MAX_LANES, totals.blocks // 4))
    return 1 << (most.bit_length() - 1)


def resolve_share(totals: Totals, options: Options, weight: int, lanes: int) -> How:
    """A source of a mixture of so many lanes: in the largest divisor of them that is at most what it would have by
    itself. `lanes` of the options is the mixture's."""
    own = replace(share(options, weight), lanes=None)
    alone = resolve(totals, own)
    if alone.shuffle != "window":
        return alone
    fits = max(d for d in range(1, min(alone.lanes, totals.samples, lanes) + 1) if lanes % d == 0)
    return alone if fits == alone.lanes else resolve(totals, replace(own, lanes=fits))


def resolve(totals: Totals, options: Options) -> How:
    """Raises ATH_ORDER_OPTION, and ATH_ORDER_STREAM for streams too large for `global`."""
    if totals.samples < 1:
        raise error("ATH_ORDER_OPTION", "the data has no samples", remedy="look with `athanor inspect`")
    free = options.lanes is None and options.window is None
    shuffle, lanes, window = options.shuffle, options.lanes, options.window
    held = _fits(totals, options) and (shuffle == "global" or (shuffle == "window" and free))
    if held:
        shuffle = "global"
    refuse_streams(totals, shuffle, held)
    if shuffle != "window" and not free:
        raise error("ATH_ORDER_OPTION", f'lanes and window belong to shuffle="window", found shuffle="{shuffle}"')
    if shuffle != "window":
        lanes = 1
    elif lanes is None:
        lanes = default_lanes(totals)
    mean = max(totals.bytes / max(totals.blocks, 1), 1)
    extent = math.floor(min(totals.bytes / (16 * lanes), _MAX_EXTENT_BYTES) / mean + 0.5)
    extent = extent // _RUN_BLOCKS * _RUN_BLOCKS if extent >= _RUN_BLOCKS else max(extent, 1)
    if shuffle == "global":
        window = totals.samples
    elif shuffle == "none":
        window = 1
    elif window is None:
        window = max(options.shuffle_memory // (lanes * max(totals.row_bytes, 1)), totals.largest_block, 1)
    return How(shuffle, lanes, window, 0 if options.unit == "shard" else extent)
