"""Logs for tests: made in a temporary directory, filled with small batches, damaged byte by byte."""

import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from headrace.core.log.segments import LogConfig
from headrace.core.records.columns import decode_batches, encode_batch, record_columns
from headrace.core.records.header import NOT_IDEMPOTENT, ProducerNumbers
from headrace.core.records.raw import RawBatch, split_batches
from headrace.core.resources.topic import Durability
from headrace.core.types import LeaderEpoch, Offset
from headrace_broker.storage.partition_log import PartitionLog
from headrace_broker.storage.recovery import begin_log
from headrace_broker.storage.threads import StorageThreads

CONFIG = LogConfig(segment_bytes=1 << 20, segment_ms=1 << 40, durability=Durability.FSYNC)
SMALL = replace(CONFIG, segment_bytes=20_000)
EPOCH = LeaderEpoch(1)
NOW_MS = 1_000
END = Offset(1 << 62)
"""Above every log's end."""


def raw_batch(
    records: int = 1,
    value_bytes: int = 10,
    timestamps_ms: int | Sequence[int] = NOW_MS,
    numbers: ProducerNumbers = NOT_IDEMPOTENT,
) -> RawBatch:
    """Not stamped yet; all values are alike."""
    columns = record_columns([b"v" * value_bytes] * records, timestamps_ms=timestamps_ms)
    (batch,) = split_batches(encode_batch(columns, numbers=numbers), batch_bytes_max=1 << 30)
    return batch


def content_of(batch: RawBatch) -> bytes:
    return b"".join(batch.buffers)


@contextmanager
def storage_threads() -> Iterator[StorageThreads]:
    threads = StorageThreads()
    yield threads
    threads.close()


def new_log_directory(parent: Path) -> Path:
    directory = parent / "log"
    directory.mkdir()
    begin_log(directory, NOW_MS)
    return directory


def open_log(directory: Path, threads: StorageThreads, config: LogConfig = CONFIG) -> PartitionLog:
    return PartitionLog.open(directory, config, threads=threads, now_ms=NOW_MS)


def fill(log: PartitionLog, batches: int, value_bytes: int = 1000, epoch: LeaderEpoch = EPOCH) -> None:
    """One record a batch, times rising by 10 ms from `NOW_MS`."""
    for i in range(batches):
        log.append([raw_batch(1, value_bytes, NOW_MS + 10 * i)], epoch, NOW_MS)


def log_files(directory: Path) -> list[Path]:
    """The segments' data, in order."""
    return sorted(directory.glob("*.log"))


def log_bytes(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in log_files(directory))


def flip_bit(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """A disk that is full as soon as a file would grow beyond `size`."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def values_from(log: PartitionLog, offset: int) -> list[int]:
    """Base offsets of all batches from `offset` on, read as a consumer does."""
    found: list[int] = []
    while buffers := await log.read(Offset(offset), max_bytes=3_000, up_to=END):
        for buffer in buffers:
            for batch in decode_batches(buffer):
                found.append(batch.header.base_offset)
                offset = batch.header.next_offset
    return found
