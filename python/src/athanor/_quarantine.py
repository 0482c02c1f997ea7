"""What a loader does with bad records: arguments, and the `quarantine` field of the hello."""

from __future__ import annotations

import os
from typing import Any, Optional, Union

from . import _arguments

Folder = Optional[Union[str, "os.PathLike[str]"]]


def quarantine_request(
    on_corrupt: str, on_io_error: str, corrupt_quota: int, ledger_dir: Folder, proof_dir: Folder = None
) -> dict[str, Any] | None:
    """None: nothing is replaced. Every replacement is written down, so replacing needs a folder."""
    for name, value in (("on_corrupt", on_corrupt), ("on_io_error", on_io_error)):
        _arguments.one_of(name, value, ("raise", "replace"))
    _arguments.at_least_one("corrupt_quota", corrupt_quota)
    if on_corrupt == on_io_error == "raise":
        return None
    folder = proof_dir if ledger_dir is None else ledger_dir
    if folder is None:
        raise ValueError(
            'ledger_dir must name a folder (or proof_dir, where the ledger then lies) with "replace", got None: '
            "each record that is replaced is written down there"
        )
    return {
        "on_corrupt": on_corrupt,
        "on_io_error": on_io_error,
        "ledger_dir": os.path.abspath(folder),
        "quota": corrupt_quota,
    }
