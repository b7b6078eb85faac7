"""A disk that fails under a log that is open in this process, without a root's device mapper."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


def descriptor_of(path: Path) -> int:
    """The descriptor under which this process has the file open; fails where there is not exactly one."""
    found = [int(entry.name) for entry in Path("/proc/self/fd").iterdir() if _target(entry) == str(path.resolve())]
    assert len(found) == 1, f"{path} is open {len(found)} times"
    return found[0]


@contextmanager
def failing_sync(path: Path) -> Iterator[None]:
    """What is written to the file meanwhile goes nowhere, and its fdatasync fails.

    A character device stands in for it: it refuses with EINVAL, as a disk reports a failed write with EIO.
    """
    fd = descriptor_of(path)
    device, saved = os.open("/dev/null", os.O_RDWR), os.dup(fd)
    os.dup2(device, fd, inheritable=False)
    try:
        yield
    finally:
        os.dup2(saved, fd, inheritable=False)
        os.close(saved)
        os.close(device)


@contextmanager
def before_each(kinds: tuple[str, ...], act: Callable[[Any], None]) -> Iterator[None]:
    """`act` is called with its first argument before each of these functions of `os`."""

    def acting(kind: str) -> Callable[..., object]:
        real = getattr(os, kind)

        def call(*args: object, **kwargs: object) -> object:
            act(args[0])
            return real(*args, **kwargs)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for kind in kinds:
            patch.setattr(os, kind, acting(kind))
        yield


def _target(entry: Path) -> str:
    try:
        return os.readlink(entry)
    except FileNotFoundError:  # the descriptor that lists the folder itself
        return ""
