"""A follower's log takes batches as its leader has stamped them, and none that does not follow."""

from pathlib import Path

import pytest

from headrace.core.errors import DivergedLogError
from headrace.core.records.header import BatchHeader
from headrace.core.records.raw import HEARTBEAT, emptied_batch, split_replicated
from headrace_broker.storage.partition_log import PartitionLog
from headrace_broker.storage.threads import StorageThreads
from tests.support.logs import END, NOW_MS, SMALL, content_of, log_bytes, log_files, open_log, values_from
from tests.support.replicas import epochs_of, replicate, stamped


async def test_should_hold_the_bytes_that_the_leader_sent(
    log: PartitionLog, directory: Path, threads: StorageThreads
) -> None:
    sent = replicate(log, range(40), 1) + replicate(log, range(40, 70), 4)

    assert log_bytes(directory) == sent
    assert len(log_files(directory)) > 2
    assert epochs_of(log) == [(1, 0), (4, 40)]
    assert await values_from(log, 0) == list(range(70))
    assert await log.find_timestamp(NOW_MS + 395, END) == (40, NOW_MS + 400)
    again = open_log(directory, threads, SMALL)
    assert (again.log_end_offset, again.recovery.cut_bytes) == (70, 0)
    assert epochs_of(again) == [(1, 0), (4, 40)]


async def test_should_take_batches_of_several_epochs_and_emptied_ones_at_once(log: PartitionLog) -> None:
    first, second = stamped(0, 1, records=3), stamped(3, 2)
    emptied = emptied_batch(BatchHeader.unpack(content_of(stamped(4, 5, records=6))))
    batches = split_replicated([content_of(first) + content_of(second) + emptied])

    appended = log.append_replicated(batches, NOW_MS)

    assert (appended.first_offset, appended.last_offset) == (0, 9)
    assert appended.base_offsets == (0, 3, 4)
    assert epochs_of(log) == [(1, 0), (2, 3), (5, 4)]


def test_should_refuse_what_does_not_follow(log: PartitionLog, directory: Path) -> None:
    replicate(log, range(5), 3)
    before = log_bytes(directory)
    (heartbeat,) = split_replicated([HEARTBEAT])
    for batches, reason in [
        ([stamped(4, 3)], "base_offset is 4, the log goes on at 5"),
        ([stamped(5, 3), stamped(7, 3)], "base_offset is 7, the log goes on at 6"),
        ([stamped(5, 2)], "leader_epoch falls from 3 to 2"),
        ([stamped(5, 4), stamped(6, 3)], "leader_epoch falls from 4 to 3"),
        ([heartbeat], "a heartbeat"),
    ]:
        with pytest.raises(DivergedLogError, match=reason):
            log.append_replicated(batches, NOW_MS)
    assert log_bytes(directory) == before
    assert (log.log_end_offset, log.last_epoch) == (5, 3)
