"""Options of an evaluation loader: those of the training loader, save what an evaluation does otherwise.

An evaluation gives every sample exactly once, in file order, in equal steps on all ranks; rows that fill up the last
step are False in `valid`. It has memory of its own in the agent, and gives it back between two evaluations.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from . import _mesh
from ._text import text_options

if TYPE_CHECKING:
    from ._loader import Loader

_VIEW = ("columns", "max_length", "pad_id", "strict", "sample_rule")


def loader_of(loader: Loader, source: str | os.PathLike[str], batch_size: int | None, given: dict[str, Any]) -> Loader:
    """`loader.eval(…)`. It is opened once, so that what cannot be is an error now and not at the first evaluation."""
    evaluation = type(loader)(source, **_options_of(loader, source, {**given, "batch_size": batch_size}))
    evaluation._opened()
    evaluation._hang_up()
    return evaluation


def _options_of(loader: Loader, source: str | os.PathLike[str], given: dict[str, Any]) -> dict[str, Any]:
    """What to make the evaluation loader with; `given` wins."""
    if "global_batch_size" in given or "grad_accum" in given:
        raise ValueError("batch_size must be given alone, an evaluation has no optimizer batch")
    request = loader._request
    options: dict[str, Any] = {name: request.view[name] for name in _VIEW if name in request.view}
    asked = request.view.get("tokenizer")
    if asked is not None:
        options |= text_options(asked)
    options |= loader._padding.options
    if request.view["index_dir"] is not None and os.path.abspath(source) == request.view["source"]:
        options["index_dir"] = request.view["index_dir"]
    options = {
        **options,
        "shuffle": "none",
        "last": "pad",
        "cp_split": loader._cp_split,
        "deliver": loader._delivers,
        "job": request.job,
        "agent": request.agent,
        "timeout": request.timeout,
        "transform": loader._transform,
        "device": loader._device,
        "_rests": request.agent != "none",  # without an agent there is nothing to give back
    }
    if all(given.get(name) is None for name in _mesh.OPTIONS):
        options["_place"] = loader._place
    size = given["batch_size"]
    return {**options, **given, "batch_size": loader.batch_size if size is None else size}
