"""Programs that tests run but Headrace does not ship: found once, skipped with a reason, or required.

`HEADRACE_REQUIRE_TOOLS=1`, which CI sets, turns a skip into a failure.
"""

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest


def require_tool(name: str, *candidates: Path) -> str:
    """The path of `name`: the first of `candidates` that is there, else from PATH; else skips the test."""
    found = next((str(path) for path in candidates if path.exists()), None) or shutil.which(name)
    if found is None:
        cannot_run(f"{name} is not installed")
    return found


def cannot_run(why: str) -> NoReturn:
    """Skips the test; fails it where all tools must be there."""
    if os.environ.get("HEADRACE_REQUIRE_TOOLS") == "1":
        pytest.fail(why)
    pytest.skip(why)


def kubectl_path() -> str:
    """HEADRACE_KUBECTL, else the one that `make lab-build` built, else PATH."""
    if chosen := os.environ.get("HEADRACE_KUBECTL"):
        return chosen
    lab = Path(os.environ.get("LAB_HOME", Path.home() / ".cache" / "headrace-lab"))
    return require_tool("kubectl", lab / "bin" / "kubectl")
