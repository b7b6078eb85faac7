"""What makes a log shorter gives its room back to the disk."""

from pathlib import Path
from unittest.mock import create_autospec

import pytest

from headrace.core.errors import CorruptLogError
from headrace.core.replication.replica import Replica
from headrace.core.types import Offset, PartitionId, TopicName
from headrace_broker.broker_disk import BrokerDisk
from headrace_broker.metrics import Metrics
from headrace_broker.partition.cleaning import Cleaner
from headrace_broker.partition.queries import Place
from tests.support.logs import SMALL, fill, new_log_directory, open_log, storage_threads

PLACE = Place(TopicName("default", "flights"), PartitionId(0))


async def test_should_give_back_what_a_cut_and_a_new_start_free(tmp_path: Path) -> None:
    with storage_threads() as threads:
        log = open_log(new_log_directory(tmp_path), threads, SMALL)
        fill(log, 50)
        await log.checkpoint_high_watermark(Offset(20))
        disk = create_autospec(BrokerDisk)
        cleaner = Cleaner(PLACE, log, create_autospec(Replica), Metrics(), disk, print)
        size = log.size_bytes

        assert await cleaner.truncate(Offset(30)) == 30
        disk.gave_back.assert_called_once_with(size - log.size_bytes)
        disk.gave_back.reset_mock()
        with pytest.raises(CorruptLogError):
            await cleaner.truncate(Offset(10))
        disk.gave_back.assert_not_called()
        size = log.size_bytes
        await cleaner.start_at(Offset(100))
        disk.gave_back.assert_called_once_with(size)
        disk.failed.assert_not_called()
