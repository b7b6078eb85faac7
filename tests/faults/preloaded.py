"""Libraries that processes load before any other (LD_PRELOAD), from C: built once for each version of their source."""

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tests.support.tools import cannot_run, require_tool

_BUILD: Final = Path(__file__).parents[2] / "build"


def preloaded(source: Path) -> Path:
    """The path for LD_PRELOAD; skips the test where there is no gcc."""
    version = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    built = _BUILD / source.stem.replace("_", "-") / f"{source.stem}-{version}.so"
    if not built.exists():
        _build(require_tool("gcc"), source, built)
    return built


def _build(gcc: str, source: Path, target: Path) -> None:
    """Under another name first: several runs may build at once."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, new = tempfile.mkstemp(dir=target.parent, suffix=".so")
    os.close(handle)
    command = [gcc, "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-o", new, str(source), "-ldl", "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        os.unlink(new)
        cannot_run(f"{source.name} cannot be built: {done.stderr[-2000:]}")
    os.rename(new, target)
