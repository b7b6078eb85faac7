"""Where the lab's programs live: `LAB_HOME`, outside any checkout, shared by all of them."""

import os
import re
import subprocess
from pathlib import Path

from e2e.lab.errors import LabError
from e2e.lab.programs import GoModule, Program

_VERSION_TIMEOUT_S = 20


def lab_home() -> Path:
    """`$LAB_HOME`, else `~/.cache/headrace-lab`."""
    named = os.environ.get("LAB_HOME")
    return Path(named) if named else Path.home() / ".cache" / "headrace-lab"


def program(name: str) -> Path:
    """The path of a built program. Raises LabError with the remedy when it is not there."""
    path = lab_home() / "bin" / name
    if not path.exists():
        raise LabError(f"{name} is not built yet; run: make lab-build")
    return path


def is_built(module: GoModule, wanted: Program) -> bool:
    """Whether the binary is there and says that it is this version. The binary's own word, so no stamp can lie."""
    path = lab_home() / "bin" / wanted.name
    if not path.exists():
        return False
    try:
        answer = subprocess.run(
            [path, *wanted.version_arguments], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return names_version(answer.stdout, module.version)


def names_version(answer: str, version: str) -> bool:
    """Whether a program's answer names this very version, with or without a `v`."""
    return re.search(rf"(?<![\d.]){re.escape(version.removeprefix('v'))}(?![\d.+])", answer) is not None


def run_folder() -> Path:
    """The state of the cluster that runs, or ran last."""
    return lab_home() / "run"
