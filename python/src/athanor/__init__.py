"""Athanor's Python client: ready training batches out of shared memory, in one exact order.

`athanor.torch` gives tensors, `athanor.numpy` arrays; both are the same loader.

>>> from athanor.torch import Loader
>>> for batch in Loader("/mnt/lustre/deepseek/data", batch_size=32, max_length=512, seed=1234):
...     batch["input_ids"], batch["attention_mask"]      # int64 [32, 512]
"""

from __future__ import annotations

import sys

from .errors import AthanorError

if not sys.platform.startswith("linux"):
    raise AthanorError(
        "ATH_PLATFORM",
        f"athanor runs on Linux only, this is {sys.platform}",
        remedy="run the training process in a Linux container or virtual machine",
    )

__version__ = "0.1.0"
__all__ = ["AthanorError", "__version__"]
