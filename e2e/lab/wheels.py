"""The wheels that images are made of: the project's own, and those of everything it needs, for the images' Python.

They are fetched outside of the images, so that building one asks no index. Those of others are kept in `LAB_HOME`, for
the last two that pyproject.toml has asked for: tests of upgrades build the commit before, too.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from email.parser import Parser
from pathlib import Path

from e2e.lab.errors import LabError
from e2e.lab.home import lab_home

EXTRAS = "broker,operator,spark"
_PLATFORMS = ("manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux_2_28_x86_64", "manylinux_2_34_x86_64")


def gather(checkout: Path, into: Path, python_version: str, say: Callable[[str], None]) -> None:
    """Fill `into` with all wheels of the project in `checkout`, and nothing else. Raises LabError with pip's words."""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    _pip("wheel", "--no-deps", "--wheel-dir", into, checkout)
    for wheel in _of_others(checkout, next(into.glob("headrace-*.whl")), python_version, say).iterdir():
        os.link(wheel, into / wheel.name) if _same_device(wheel, into) else shutil.copy(wheel, into)


def _of_others(checkout: Path, own: Path, python_version: str, say: Callable[[str], None]) -> Path:
    asked = (checkout / "pyproject.toml").read_bytes() + python_version.encode()
    kept = lab_home() / "wheels" / hashlib.sha256(asked).hexdigest()[:12]
    if kept.exists():
        return kept
    say(f"fetching wheels for Python {python_version}")
    _forget(kept.parent)
    partial = kept.with_suffix(".partial")
    partial.mkdir(parents=True)
    # PySpark is published as source alone. It has no extension, so its wheel fits every Python.
    _pip("wheel", "--no-deps", "--wheel-dir", partial, _pyspark(own))
    platforms = [f"--platform={name}" for name in _PLATFORMS]
    versions = ("--only-binary=:all:", "--implementation=cp", f"--python-version={python_version}", *platforms)
    _pip("download", "--dest", partial, "--find-links", partial, *versions, "pip", f"{own}[{EXTRAS}]")
    for wheel in partial.glob("headrace-*.whl"):
        wheel.unlink()
    return partial.rename(kept)


def _forget(folder: Path) -> None:
    """All but the last whole one."""
    found = sorted(folder.glob("*"), key=lambda path: path.stat().st_mtime)
    partial = [path for path in found if path.suffix]
    for path in (*partial, *[path for path in found if not path.suffix][:-1]):
        shutil.rmtree(path)


def _pyspark(own: Path) -> str:
    """The requirement, as the project's own wheel states it."""
    with zipfile.ZipFile(own) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        stated = Parser().parsestr(archive.read(name).decode()).get_all("Requires-Dist", [])
    return next(line.partition(";")[0] for line in stated if line.startswith("pyspark"))


def _pip(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "pip", arguments[0], "--quiet", *arguments[1:]]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise LabError(f"pip {arguments[0]} failed: {result.stderr.strip()}")


def _same_device(one: Path, other: Path) -> bool:
    return one.stat().st_dev == other.stat().st_dev
