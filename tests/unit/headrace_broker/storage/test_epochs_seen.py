"""The epochs that a broker has seen: on disk before anybody acts on them, and missed where they are lost."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.core.errors import DiskFullError
from headrace.core.types import Incarnation, LeaderEpoch, PartitionId, PartitionKey, TopicName, TopicUid
from headrace_broker.storage.data_directory import DataDirectory
from headrace_broker.storage.partition_store import PartitionDescription
from tests.support.failing_disk import before_each
from tests.support.logs import NOW_MS, file_size_limit

KEY = PartitionKey(TopicUid("6f0c-11"), PartitionId(0))
OTHER = PartitionKey(TopicUid("6f0c-11"), PartitionId(1))
SEEN = {KEY: LeaderEpoch(7), OTHER: LeaderEpoch(2)}
FSYNC = PartitionDescription(TopicName("default", "flights"), KEY, {"durability": "Fsync"})


@contextmanager
def opened(path: Path) -> Iterator[DataDirectory]:
    data = DataDirectory.open(path)
    try:
        yield data
    finally:
        data.close(clean=False)


def test_should_be_known_to_the_next_life(tmp_path: Path) -> None:
    with opened(tmp_path) as data:
        assert data.epochs_seen.read() == {}
        data.epochs_seen.write(SEEN)
        data.epochs_seen.write({KEY: LeaderEpoch(8), OTHER: LeaderEpoch(1)})
        assert data.epochs_seen.read() == {KEY: 8, OTHER: 2}
    with opened(tmp_path) as data:
        assert data.epochs_seen.read() == {KEY: 8, OTHER: 2}


def test_should_write_nothing_when_nothing_rises(tmp_path: Path) -> None:
    with opened(tmp_path) as data:
        data.epochs_seen.write(SEEN)
        renamed: list[object] = []
        with before_each(("rename",), renamed.append):
            data.epochs_seen.write(SEEN)
        assert renamed == []


def test_should_not_count_as_seen_what_is_not_on_disk(tmp_path: Path) -> None:
    with opened(tmp_path) as data:
        data.epochs_seen.write(SEEN)
        with file_size_limit(10), pytest.raises(DiskFullError, match="epochs-seen"):
            data.epochs_seen.write({KEY: LeaderEpoch(9)})
        assert data.epochs_seen.read() == SEEN
        data.epochs_seen.write({KEY: LeaderEpoch(9)})
        assert data.epochs_seen.read() == {KEY: 9, OTHER: 2}


def test_should_forget_a_partition_whose_data_is_deleted(tmp_path: Path) -> None:
    with opened(tmp_path) as data:
        data.store.prepare(FSYNC, NOW_MS)
        data.epochs_seen.write(SEEN)
        data.store.delete(KEY)
        data.epochs_seen.write({OTHER: LeaderEpoch(3)})
    with opened(tmp_path) as data:
        assert data.epochs_seen.read() == {OTHER: 3}


@pytest.mark.parametrize("damage", ["missing", "empty", "torn", "flipped"])
def test_should_void_every_seat_once_when_it_is_not_known_what_was_seen(tmp_path: Path, damage: str) -> None:
    with opened(tmp_path) as data:
        data.write_incarnation(Incarnation(4), Incarnation(0))
        data.store.prepare(FSYNC, NOW_MS)
        data.epochs_seen.write(SEEN)
    spoil(tmp_path / "epochs-seen", damage)

    with opened(tmp_path) as data:
        assert "epochs-seen" in data.epochs_seen.damage
        assert data.store.void_before(KEY) == 5
        assert data.epochs_seen.read() == {}
        data.write_incarnation(Incarnation(5), Incarnation(4))
    with opened(tmp_path) as data:
        assert data.epochs_seen.damage == ""
        assert data.store.void_before(KEY) == 5


def spoil(path: Path, damage: str) -> None:
    content = path.read_bytes()
    match damage:
        case "missing":
            os.unlink(path)
        case "empty":
            path.write_bytes(b"")
        case "torn":
            path.write_bytes(content[:-3])
        case _:
            path.write_bytes(content.replace(b" 7\n", b" 6\n"))
