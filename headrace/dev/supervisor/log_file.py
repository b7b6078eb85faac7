"""The children's log files: appended to over restarts, bounded by keeping one older part."""

import os
from pathlib import Path
from typing import BinaryIO

from headrace.core.limits import DEV_LOG_BYTES_MAX


def open_log(path: Path) -> BinaryIO:
    """Open for appending; what grew over the bound is moved aside as `<name>.1` first."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.exists() and path.stat().st_size > DEV_LOG_BYTES_MAX:
        os.replace(path, path.with_name(path.name + ".1"))
    path.touch(mode=0o600)
    path.chmod(0o600)  # One of an earlier version may be anybody's to read.
    return path.open("ab", buffering=0)


def last_lines(path: Path, count: int) -> str:
    """The end of a log, for an error message; empty where there is none."""
    if not path.exists():
        return ""
    return "\n".join(path.read_text(errors="replace").splitlines()[-count:])
