"""Builds `faulty_disk.c`, once for each version of it; skips the test where there is no gcc."""

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tests.support.tools import cannot_run, require_tool

_SOURCE: Final = Path(__file__).with_name("faulty_disk.c")
_HOME: Final = Path(__file__).parents[3] / "build" / "faulty-disk"


def library() -> Path:
    """The path for LD_PRELOAD."""
    source = _SOURCE.read_bytes()
    built = _HOME / f"faulty_disk-{hashlib.sha256(source).hexdigest()[:16]}.so"
    if not built.exists():
        _build(require_tool("gcc"), built)
    return built


def _build(gcc: str, target: Path) -> None:
    """Under another name first: several tests may build at once."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, new = tempfile.mkstemp(dir=target.parent, suffix=".so")
    os.close(handle)
    command = [gcc, "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-o", new, str(_SOURCE), "-ldl", "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        os.unlink(new)
        cannot_run(f"faulty_disk.c cannot be built: {done.stderr[-2000:]}")
    os.rename(new, target)
