"""The loader with numpy arrays: for evaluation scripts, benchmarks and tests without torch.

>>> from athanor.numpy import Loader
>>> next(iter(Loader("/data/shards", batch_size=32)))["input_ids"].shape
(32, 512)
"""

from __future__ import annotations

from ._loader import Loader
from ._proof import proof_total

__all__ = ["Loader", "proof_total"]
