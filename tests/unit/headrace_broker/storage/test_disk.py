"""The page cache after a read, by what the kernel says is there.

The kernel's answers are given: what its page cache holds depends on the disk, on memory and on all else that runs.
"""

import errno
import os
from pathlib import Path

import pytest

from headrace_broker.storage.disk import READ_ONCE_BYTES_MIN, FileHandle, read_once

SIZE = 4 * READ_ONCE_BYTES_MIN
MIDDLE = SIZE // 2


class Kernel:
    """Answers whether a byte is in the page cache, and writes down what it is told to forget."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.is_cached = True
        self.asked: list[int] = []
        self.forgotten: list[tuple[int, int]] = []
        patch.setattr(os, "preadv", self._preadv)
        patch.setattr(os, "posix_fadvise", self._posix_fadvise)

    def _preadv(self, _: int, buffers: list[bytearray], position: int, flags: int) -> int:
        assert flags == os.RWF_NOWAIT
        self.asked.append(position)
        if not self.is_cached:
            raise BlockingIOError(errno.EAGAIN, "not in the page cache")
        return sum(map(len, buffers))

    def _posix_fadvise(self, _: int, position: int, length: int, advice: int) -> None:
        assert advice == os.POSIX_FADV_DONTNEED
        self.forgotten.append((position, length))


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(monkeypatch)


@pytest.fixture
def file(tmp_path: Path) -> FileHandle:
    (tmp_path / "file").write_bytes(bytes(SIZE))
    return FileHandle(tmp_path / "file", os.O_RDONLY)


def test_should_leave_nothing_behind_when_a_long_read_waited_for_the_disk(file: FileHandle, kernel: Kernel) -> None:
    kernel.is_cached = False
    assert read_once(file, 0, SIZE) == bytes(SIZE)
    assert (kernel.asked, kernel.forgotten) == ([MIDDLE], [(0, SIZE)])


def test_should_leave_what_others_had_brought_in(file: FileHandle, kernel: Kernel) -> None:
    assert read_once(file, 0, SIZE) == bytes(SIZE)
    assert (kernel.asked, kernel.forgotten) == ([MIDDLE], [])


def test_should_leave_a_short_read_in_the_page_cache(file: FileHandle, kernel: Kernel) -> None:
    kernel.is_cached = False
    assert read_once(file, MIDDLE, 100) == bytes(100)
    assert (kernel.asked, kernel.forgotten) == ([], [])
