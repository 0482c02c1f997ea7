from __future__ import annotations

import json
import re
import subprocess
import sys

import athanor
from conftest import ROOT

SOURCE = ROOT / "python/src/athanor"


def test_other_systems_are_refused_clearly() -> None:
    program = "import sys; sys.platform = 'darwin'; import athanor"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(SOURCE.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0 and "runs on Linux only, this is darwin" in done.stderr


def test_version_is_that_of_the_agent() -> None:
    assert athanor.__version__ == json.loads((ROOT / "package.json").read_text())["version"]
    assert f'version = "{athanor.__version__}"' in (ROOT / "python/pyproject.toml").read_text()


def test_every_code_is_documented() -> None:
    codes = {code for path in SOURCE.glob("*.py") for code in re.findall(r'"(ATH_[A-Z_]+)"', path.read_text())}
    documented = set(re.findall(r"^## (ATH_\w+)$", (ROOT / "docs/reference/errors.md").read_text(), re.M))
    assert len(codes) > 15 and codes <= documented, codes - documented


def test_numpy_loader_does_not_import_torch() -> None:
    program = "import sys, athanor.numpy; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": str(SOURCE.parent)}, check=False)
    assert done.returncode == 0
