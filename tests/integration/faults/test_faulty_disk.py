"""The faulty disk under test: it fails as it is told, and after a power failure has what was synced, at least."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.core.records.columns import encode_batch, record_columns
from headrace.core.records.header import BatchHeader
from headrace_broker.storage.data_directory import DataDirectory
from tests.faults.shim import READ, SYNC, WRITE, FaultyDisk
from tests.support.log_writer import CONFIG, DESCRIPTION, split_file
from tests.support.logs import log_bytes
from tests.support.patience import patient

POWER_FAILURES = 6
PRELUDE = """
import errno, os, shutil, sys, time
os.chdir(sys.argv[1])

def write(path, content, flags=os.O_CREAT | os.O_APPEND):
    fd = os.open(path, os.O_WRONLY | flags)
    os.writev(fd, [content[:1], content[1:]])
    return fd

def sync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)

def fails(call, *args):
    try:
        call(*args)
    except OSError as error:
        return errno.errorcode[error.errno]
    return ""
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FaultyDisk]:
    (tmp_path / "data").mkdir()
    disk = FaultyDisk(tmp_path / "data")
    yield disk
    disk.close()


def run(disk: FaultyDisk, script: str) -> str:
    """In a process of its own, which dies by kill -9 at the end; what it printed."""
    command = [sys.executable, "-c", f"{PRELUDE}{script}\nsys.stdout.flush()\nos.kill(os.getpid(), 9)", str(disk.root)]
    done = subprocess.run(
        command,
        env={**os.environ, **disk.environment()},
        capture_output=True,
        text=True,
        check=False,
        timeout=patient(100),
    )
    assert done.returncode == -9, done.stderr
    return done.stdout


def content(disk: FaultyDisk) -> dict[str, str]:
    files = (path for path in sorted(disk.root.rglob("*")) if path.is_file())
    return {str(path.relative_to(disk.root)): path.read_text() for path in files}


def test_should_keep_what_was_synced_and_lose_the_rest(disk: FaultyDisk) -> None:
    run(
        disk,
        """
for name in "abc":
    write(name, b"synced,")
sync("a"); sync("b"); sync("c"); sync(".")
write("a", b"more")
os.fdatasync(write("b", b"more"))
write("b", b",and more")
write("c", b"M", flags=0)
os.ftruncate(os.open("c", os.O_RDWR), 3)
""",
    )
    assert content(disk) == {"a": "synced,more", "b": "synced,more,and more", "c": "Myn"}

    lost = disk.lose_power()

    assert content(disk) == {"a": "synced,", "b": "synced,more", "c": "synced,"}
    assert lost.files == {"a", "b", "c"}
    assert lost.bytes == len("more") + len(",and more")
    assert disk.lose_power().changes == 0


def test_should_lose_names_whose_directory_was_not_synced(disk: FaultyDisk) -> None:
    run(
        disk,
        """
os.mkdir("kept"); os.mkdir("gone")
for name in ("old", "victim", "deleted", "kept/file", "gone/file"):
    os.fsync(write(name, name.encode()))
for directory in (".", "kept", "gone"):
    sync(directory)
os.fsync(write("new", b"new")); os.fsync(write("kept/new", b"new"))
os.rename("old", "victim")
os.unlink("deleted")
shutil.rmtree("gone")
os.mkdir("made"); os.fsync(write("made/file", b"")); sync("made")
""",
    )
    assert set(content(disk)) == {"kept/file", "kept/new", "made/file", "new", "victim"}
    disk.lose_power()
    assert content(disk) == {name: name for name in ("old", "victim", "deleted", "kept/file", "gone/file")}
    assert not (disk.root / "made").exists()


def test_should_keep_names_whose_directory_was_synced(disk: FaultyDisk) -> None:
    run(
        disk,
        """
for name in ("old", "victim", "deleted"):
    os.fsync(write(name, name.encode()))
os.mkdir("gone"); write("gone/file", b"")
sync(".")
os.rename("old", "victim"); os.unlink("deleted"); shutil.rmtree("gone")
sync(".")
write("after", b"of the same inode, it may be")
""",
    )
    disk.lose_power()
    assert content(disk) == {"victim": "old"}
    assert list(disk.root.iterdir()) == [disk.root / "victim"]


def test_should_replace_a_file_as_a_whole_or_not_at_all(disk: FaultyDisk) -> None:
    replace = """
fd = write("file.new", b"SECOND"); os.fsync(fd)
os.rename("file.new", "file")
"""
    run(disk, 'os.fsync(write("file", b"first")); sync(".")' + replace)
    disk.lose_power()
    assert content(disk) == {"file": "first"}
    run(disk, replace + 'sync(".")')
    disk.lose_power()
    assert content(disk) == {"file": "SECOND"}


def test_should_keep_some_part_by_chance(disk: FaultyDisk) -> None:
    seen = set[int]()
    for seed in range(30):
        run(disk, 'sync("."); fd = write("file", b"s" * 10_000, os.O_CREAT | os.O_TRUNC); os.fsync(fd); sync(".")')
        run(disk, 'write("file", b"m" * 10_000)')
        disk.lose_power(seed)
        kept = content(disk)["file"]
        assert kept.startswith("s" * 10_000)
        assert not kept[10_000:].strip("m\0")
        seen.add(len(kept))
    assert len(seen) > 5, "torn in other places"


def test_should_fail_the_calls_that_it_is_told_to(disk: FaultyDisk) -> None:
    disk.fail(SYNC, errno.EIO, path="b.log", after=1, times=2)
    said = run(
        disk, 'a, b = write("a.log", b""), write("b.log", b"")\nprint([fails(os.fdatasync, x) for x in [b, a] * 4])'
    )
    assert said == "['', '', 'EIO', '', 'EIO', '', '', '']\n"
    disk.heal()
    with disk.failing(READ, errno.EIO) as fault:
        reads = """
fd = os.open("a.log", os.O_RDONLY)
print(fails(os.pread, fd, 1, 0), fails(os.preadv, fd, [bytearray(1)], 0, os.RWF_NOWAIT), fails(os.read, fd, 1))
"""
        assert run(disk, reads) == "EIO EIO EIO\n"
    assert fault.hits == 3
    assert run(disk, reads) == "  \n"


def test_should_run_out_of_room(disk: FaultyDisk) -> None:
    disk.room(10)
    said = run(
        disk,
        """
fd = os.open("file", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
print(os.write(fd, b"123456"), os.write(fd, b"123456"), fails(os.write, fd, b"1"), fails(os.posix_fallocate, fd, 0, 9))
os.ftruncate(fd, 8)
print(os.write(fd, b"123456"))
os.unlink("file")
print(os.write(os.open("other", os.O_CREAT | os.O_WRONLY), b"1" * 20), os.statvfs(sys.argv[1]).f_bavail)
""",
    )
    assert said == "6 4 ENOSPC ENOSPC\n2\n10 0\n"
    disk.room(None)
    assert run(disk, 'print(os.write(os.open("file", os.O_CREAT | os.O_WRONLY), b"123456"))') == "6\n"


def test_should_tear_writes_wait_and_refuse_all_changes(disk: FaultyDisk) -> None:
    disk.fail(WRITE, errno.EIO, torn=True, times=1)
    disk.slow(SYNC, 300)
    said = run(
        disk,
        """
print(fails(write, "torn", b"12345678"))
started = time.monotonic()
sync("torn")
print(time.monotonic() - started >= 0.3)
""",
    )
    assert said == "EIO\nTrue\n"
    assert content(disk) == {"torn": "1234"}
    disk.read_only()
    said = run(
        disk,
        """
tried = [(write, "torn", b""), (write, "new", b""), (os.rename, "torn", "b"), (os.unlink, "torn"), (os.mkdir, "c")]
print({fails(*each) for each in tried}, os.read(os.open("torn", os.O_RDONLY), 9))
""",
    )
    assert said == "{'EROFS'} b'1234'\n"


def test_should_leave_other_files_and_later_processes_alone(disk: FaultyDisk, tmp_path: Path) -> None:
    disk.fail(WRITE | SYNC, errno.EIO)
    said = run(disk, 'fd = write(sys.argv[1] + ".beside", b"x"); print(fails(os.fsync, fd))')
    assert said == "\n"
    assert (tmp_path / "data.beside").read_text() == "x"
    # A child between vfork and exec closes all descriptors, in the memory of its parent.
    said = run(
        disk,
        """
import subprocess
fd = os.open("file", os.O_CREAT | os.O_WRONLY)
subprocess.run(["true"], close_fds=True, check=True)
print(fails(os.write, fd, b"x"), fails(subprocess.run, ["sh", "-c", "true"]))
""",
    )
    assert said == "EIO \n"


def test_should_have_what_was_acknowledged_after_each_power_failure(disk: FaultyDisk, tmp_path: Path) -> None:
    """A log as a broker writes it, of which any unsynced part may be missing."""
    records = [record_columns([bytes([i]) * size], timestamps_ms=0) for i, size in enumerate((10, 40_000, 300, 5_000))]
    batches = tmp_path / "batches"
    batches.write_bytes(b"".join(buffer for each in records for buffer in encode_batch(each)))
    written, lost_bytes, acknowledged = split_file(batches), 0, 0
    command = [sys.executable, "-m", "tests.support.log_writer", str(disk.root), str(batches)]
    for seed in range(POWER_FAILURES):
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, **disk.environment()})
        with writer:
            assert writer.stdout is not None
            for _ in range(150):
                line = writer.stdout.readline()
            writer.kill()
            # Its last word may be cut short: pipes have no records.
            whole = [line for line in (line, *writer.stdout) if line.endswith(b"\n")]
        acknowledged = max(acknowledged, int(whole[-1]))
        lost_bytes += disk.lose_power(None if seed == 0 else seed).bytes

        data = DataDirectory.open(disk.root)
        log = data.open_log(DESCRIPTION, CONFIG, now_ms=0)
        assert log.log_end_offset >= acknowledged
        assert not log.recovery.cut_below_recovery_point
        assert not data.same_boot
        directory = log.directory
        for number, batch in enumerate(split_log(log_bytes(directory))):
            # Its leader stamps the first sixteen bytes and their checksum.
            assert batch[64:] == written[number % len(written)][64:]
        log.close()
        data.close(clean=False)
    assert lost_bytes > 0, "else nothing was tried"


def split_log(log: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(log):
        size = BatchHeader.unpack(log, at).batch_bytes
        yield log[at : at + size]
        at += size
