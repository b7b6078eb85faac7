"""The wheels that images are made of, for the images' Python: what Headrace needs, pip, and what builds its own wheel.

They are fetched outside of the images, so that building one asks no index, and kept in `LAB_HOME`: for the last two
that pyproject.toml has asked for, as tests of upgrades build the commit before, too.
"""

import hashlib
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

from e2e.lab.errors import LabError
from e2e.lab.home import lab_home

EXTRAS = ("broker", "operator", "spark")
_PLATFORMS = ("manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux_2_28_x86_64", "manylinux_2_34_x86_64")


def gathered(checkout: Path, python_version: str, say: Callable[[str], None]) -> Path:
    """The folder with all of them. Raises LabError with pip's words."""
    asked = (checkout / "pyproject.toml").read_bytes() + python_version.encode() + Path(__file__).read_bytes()
    kept = lab_home() / "wheels" / hashlib.sha256(asked).hexdigest()[:12]
    if kept.exists():
        return kept
    say(f"fetching wheels for Python {python_version}")
    _forget(kept.parent)
    partial = kept.with_suffix(".partial")
    partial.mkdir(parents=True)
    wanted = _run(checkout / "docker" / "install.py", "requirements", *EXTRAS).splitlines()
    backend = tomllib.loads((checkout / "pyproject.toml").read_text())["build-system"]["requires"]
    # PySpark is published as source alone. It has no extension, so its wheel fits every Python.
    spark = next(each for each in wanted if each.startswith("pyspark"))
    _run("-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", partial, spark)
    platforms = [f"--platform={name}" for name in _PLATFORMS]
    versions = ("--only-binary=:all:", "--implementation=cp", f"--python-version={python_version}", *platforms)
    where = ("--dest", partial, "--find-links", partial)
    _run("-m", "pip", "download", "--quiet", *where, *versions, "pip", *backend, *wanted)
    return partial.rename(kept)


def _forget(folder: Path) -> None:
    """All but the last whole one."""
    found = sorted(folder.glob("*"), key=lambda path: path.stat().st_mtime)
    partial = [path for path in found if path.suffix]
    for path in (*partial, *[path for path in found if not path.suffix][:-1]):
        shutil.rmtree(path)


def _run(*arguments: str | Path) -> str:
    """This Python. Raises LabError."""
    command = [sys.executable, *arguments]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise LabError(f"{' '.join(map(str, arguments[:3]))} failed: {result.stderr.strip()}")
    return result.stdout
