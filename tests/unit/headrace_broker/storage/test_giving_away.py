"""What a broker gives away, on its disk."""

import logging
from pathlib import Path

import pytest

from headrace.core.errors import DiskFullError
from headrace.core.types import PartitionEpoch, PartitionId, PartitionKey, TopicUid
from headrace_broker.storage.data_directory import GivingAway
from tests.support.logs import file_size_limit

NOTES = {PartitionKey(TopicUid("uid-1"), PartitionId(0)): PartitionEpoch(3)}


def test_should_outlive_the_process(tmp_path: Path) -> None:
    assert GivingAway(tmp_path).notes == {}
    GivingAway(tmp_path).write(NOTES)
    assert GivingAway(tmp_path).notes == NOTES


def test_should_know_in_this_life_what_a_full_disk_does_not_take(tmp_path: Path) -> None:
    going = GivingAway(tmp_path)
    with file_size_limit(10), pytest.raises(DiskFullError, match="giving-away"):
        going.write(NOTES)
    assert (going.notes, going.is_behind) == (NOTES, True)
    going.write(NOTES)
    assert not going.is_behind


def test_should_know_nothing_where_the_file_is_damaged_and_say_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    GivingAway(tmp_path).write(NOTES)
    path = tmp_path / "giving-away"
    path.write_bytes(path.read_bytes()[:-2])
    with caplog.at_level(logging.ERROR):
        assert GivingAway(tmp_path).notes == {}
    assert "are kept" in caplog.text
