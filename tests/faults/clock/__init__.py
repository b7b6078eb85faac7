"""A wall clock that is wrong, for processes that load it (LD_PRELOAD); monotonic clocks stay right.

`environment(offset_s)` is what a process must find beside its own environment.
"""

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tests.support.tools import cannot_run, require_tool

_SOURCE: Final = Path(__file__).with_name("wrong_clock.c")
_HOME: Final = Path(__file__).parents[3] / "build" / "wrong-clock"


def environment(offset_s: int) -> dict[str, str]:
    return {"LD_PRELOAD": str(_library()), "HEADRACE_CLOCK_OFFSET_S": str(offset_s)}


def _library() -> Path:
    """Built once for each version of the source."""
    built = _HOME / f"wrong_clock-{hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:16]}.so"
    if not built.exists():
        _build(require_tool("gcc"), built)
    return built


def _build(gcc: str, target: Path) -> None:
    """Under another name first: several runs may build at once."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, new = tempfile.mkstemp(dir=target.parent, suffix=".so")
    os.close(handle)
    command = [gcc, "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-o", new, str(_SOURCE), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        os.unlink(new)
        cannot_run(f"wrong_clock.c cannot be built: {done.stderr[-2000:]}")
    os.rename(new, target)
