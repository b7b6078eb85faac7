"""kill -9 in the middle of appends: nothing that was acknowledged is lost, and the next process may begin at once."""

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.core.records.columns import encode_batch, record_columns
from headrace.core.records.header import BatchHeader
from headrace.core.types import Offset
from headrace_broker.storage.data_directory import DataDirectory, DataDirectoryInUseError
from tests.support.log_writer import CONFIG, DESCRIPTION, split_file
from tests.support.logs import END

KILLS = 20
SIZES = (10, 1_000, 100, 40_000, 300, 5_000, 250_000)
"""Of values. Larger ones are more often cut in the middle."""


@pytest.fixture
def batches(tmp_path: Path) -> Path:
    path = tmp_path / "batches"
    records = [record_columns([bytes([i]) * size], timestamps_ms=0) for i, size in enumerate(SIZES)]
    path.write_bytes(b"".join(buffer for batch in records for buffer in encode_batch(batch)))
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data"


class Writer:
    """A `log_writer` process."""

    def __init__(self, data: Path, batches: Path) -> None:
        command = [sys.executable, "-m", "tests.support.log_writer", str(data), str(batches)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)

    def numbers(self, count: int) -> list[int]:
        """The next `count` numbers that it says."""
        assert self.process.stdout is not None
        return [int(self.process.stdout.readline()) for _ in range(count)]

    def kill(self) -> list[int]:
        """Returns what it had still said."""
        self.process.kill()
        with self.process:
            assert self.process.stdout is not None
            return [int(line) for line in self.process.stdout.read().splitlines()]


@pytest.fixture
def writers() -> Iterator[list[Writer]]:
    writers: list[Writer] = []
    yield writers
    for writer in writers:
        if writer.process.returncode is None:
            writer.kill()


async def test_should_lose_nothing_acknowledged_when_killed_again_and_again(
    path: Path, batches: Path, writers: list[Writer]
) -> None:
    chance = random.Random(3)
    checked = 0
    for life in range(1, KILLS + 1):
        writer = Writer(path, batches)
        writers.append(writer)
        incarnation, *said = writer.numbers(1 + chance.randint(1, 12))
        said += writer.kill()
        assert incarnation == life

        checked = await check(path, split_file(batches), checked, acknowledged=said[-1])
    assert await check(path, split_file(batches), 0, acknowledged=checked) == checked


async def check(path: Path, batches: list[bytes], offset: int, *, acknowledged: int) -> int:
    """From `offset` to beyond `acknowledged` every batch is there with the bytes that were sent; returns the end."""
    data = DataDirectory.open(path)
    log = data.open_log(DESCRIPTION, CONFIG, now_ms=0)
    assert log.log_end_offset >= acknowledged
    assert not log.recovery.cut_below_recovery_point
    while buffers := await log.read(Offset(offset), max_bytes=1 << 20, up_to=END):
        for buffer in buffers:
            for header, body in split(buffer):
                assert header.base_offset == offset
                assert body == batches[offset % len(batches)][20:]
                offset = header.next_offset
    assert offset == log.log_end_offset
    data.close(clean=False)
    return offset


def split(buffer: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """(header, bytes from the CRC on, which no stamp touches) of each batch."""
    while buffer:
        header = BatchHeader.unpack(buffer)
        yield header, buffer[20 : header.batch_bytes]
        buffer = buffer[header.batch_bytes :]


def test_should_refuse_a_second_process_until_the_first_one_is_gone(
    path: Path, batches: Path, writers: list[Writer]
) -> None:
    first = Writer(path, batches)
    writers.append(first)
    first.numbers(2)

    with pytest.raises(DataDirectoryInUseError, match=f"in use by process {first.process.pid};"):
        DataDirectory.open(path)
    second = subprocess.run(
        [sys.executable, "-m", "tests.support.log_writer", str(path), str(batches)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"process {first.process.pid}" in second.stderr

    first.kill()
    data = DataDirectory.open(path)
    assert data.read_incarnation() == 1
    assert not data.stopped_cleanly
    assert data.same_boot
    data.close(clean=True)
