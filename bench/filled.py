"""Logs of any length, written by the storage engine itself while their broker is stopped: faster than any client.

Batches of BATCH_BYTES, as busy producers make them, so that the sparse indexes have an entry for each; times rise by
BATCH_MS from one batch to the next.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.workload import VALUE_BYTES, batch
from headrace.core.log.segments import LogConfig
from headrace.core.records.raw import RawBatch, split_batches
from headrace.core.resources.topic import TopicSpec
from headrace.core.types import LeaderEpoch
from headrace_broker.storage.data_directory import DataDirectory
from headrace_broker.storage.partition_log import PartitionLog

BATCH_BYTES = 16 << 10
BATCH_RECORDS = BATCH_BYTES // VALUE_BYTES
BATCH_MS = 10
BEGAN_MS = time.time_ns() // 1_000_000 - 7_200_000
"""Recently: retention must not take what was just written."""
_BATCHES_AT_ONCE = 64
_SYNC_BYTES = 128 << 20
_EPOCH = LeaderEpoch(1)


def time_of(batch_number: int) -> int:
    return BEGAN_MS + batch_number * BATCH_MS


@contextmanager
def opened_logs(path: Path, topics: Sequence[str]) -> Iterator[tuple[DataDirectory, dict[str, PartitionLog]]]:
    """The logs of partition 0 of these topics, in the data directory of a broker that does not run."""
    data = DataDirectory.open(path)
    stored = [each.description for each in data.store.partitions() if each.description is not None]
    described = {each.topic.name: each for each in stored}
    configs = {name: LogConfig.of_topic(TopicSpec.parse(described[name].spec)) for name in topics}
    logs = {name: data.open_log(described[name], configs[name], BEGAN_MS) for name in topics}
    yield data, logs
    for log in logs.values():
        log.close()
    data.close(clean=True)


def fill(path: Path, sizes: Mapping[str, int]) -> dict[str, list[Path]]:
    """Every topic's log up to its size; the files of its segments."""
    batches = [split_batches(batch(BATCH_RECORDS).buffers, batch_bytes_max=1 << 30)[0] for _ in range(_BATCHES_AT_ONCE)]
    with opened_logs(path, list(sizes)) as (_, logs):
        for name, size in sizes.items():
            _fill(logs[name], size, batches)
    return {name: sorted(log.directory.glob("*.log")) for name, log in logs.items()}


def _fill(log: PartitionLog, size: int, batches: Sequence[RawBatch]) -> None:
    synced = 0
    while log.size_bytes < size:
        for number, each in enumerate(batches, log.log_end_offset // BATCH_RECORDS):
            each.take_append_time(time_of(number))
        log.append(batches, _EPOCH, BEGAN_MS)
        if log.size_bytes - synced > _SYNC_BYTES:
            # As a broker does: segments are not closed while many of them wait for their sync.
            asyncio.run(log.sync())
            synced = log.size_bytes
