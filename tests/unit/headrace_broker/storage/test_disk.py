"""What a read leaves in the page cache, as the kernel tells it."""

import os
from pathlib import Path

import pytest

from headrace.core.limits import READ_ONCE_BYTES_MIN
from headrace_broker.storage.disk import FileHandle, NotCachedError, read_cached, read_once

SIZE = 4 * READ_ONCE_BYTES_MIN


@pytest.fixture
def file(tmp_path: Path) -> FileHandle:
    """All of it on disk, and in the page cache."""
    (tmp_path / "file").write_bytes(bytes(SIZE))
    handle = FileHandle(tmp_path / "file", os.O_RDONLY)
    handle.sync()
    if not is_cached(handle):
        pytest.skip("this file system does not say what is in the page cache")
    return handle


def is_cached(file: FileHandle) -> bool:
    try:
        read_cached(file, SIZE // 2, 1)
    except NotCachedError:
        return False
    return True


def forget(file: FileHandle) -> None:
    """Without a look at what is left: a look at what is not there makes the kernel begin to read it ahead."""
    os.posix_fadvise(file.fd, 0, 0, os.POSIX_FADV_DONTNEED)


def test_should_leave_nothing_behind_when_a_long_read_waited_for_the_disk(file: FileHandle) -> None:
    assert any(leaves_nothing(file) for _ in range(20))


def leaves_nothing(file: FileHandle) -> bool:
    """`read_once` must first ask whether anything is there, and a fast disk may have read it ahead by the answer."""
    forget(file)
    assert read_once(file, 0, SIZE) == bytes(SIZE)
    return not is_cached(file)


def test_should_leave_what_others_had_brought_in(file: FileHandle) -> None:
    assert read_once(file, 0, SIZE) == bytes(SIZE)
    assert is_cached(file)


def test_should_leave_a_short_read_in_the_page_cache(file: FileHandle) -> None:
    forget(file)
    assert read_once(file, SIZE // 2, 100) == bytes(100)
    assert is_cached(file)
