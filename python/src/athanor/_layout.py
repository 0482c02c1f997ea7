"""Offsets of the segment file, read from `_layout.json` (a copy of src/agent/layout.json; a test keeps them equal).

The picture is in docs/reference/protocol.md. All offsets are bytes, all numbers little-endian.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_raw: dict[str, Any] = json.loads((Path(__file__).parent / "_layout.json").read_text(encoding="utf-8"))

PROTOCOL: int = _raw["protocol"]
LAYOUT_VERSION: int = _raw["layoutVersion"]
MAGIC: bytes = _raw["magic"].encode("ascii")
HEADER_BYTES: int = _raw["headerBytes"]
HEADER: dict[str, int] = _raw["header"]
SLOT: dict[str, int] = _raw["slot"]
IDENTITY_BYTES: int = _raw["identityBytes"]
FLAG_PADDED: int = _raw["flags"]["padded"]
MAX_SEGMENT_BYTES: int = _raw["maxSegmentBytes"]
