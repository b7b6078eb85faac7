"""Partitions on a disk: data leaves it only when somebody says so."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.control.broker_reports import HeldLog
from headrace.core.errors import StorageFailedError
from headrace.core.log.checkpoints import DamagedFileError, LogPoint
from headrace.core.log.epochs import NO_EPOCH
from headrace.core.types import Incarnation, LeaderEpoch, Offset, PartitionId, PartitionKey, TopicName, TopicUid
from headrace_broker.storage.disk import shown
from headrace_broker.storage.partition_files import PartitionFiles
from headrace_broker.storage.partition_store import (
    PartitionDescription,
    PartitionStore,
    StoredPartition,
    directory_name,
    parse_directory_name,
)
from tests.support.logs import CONFIG, fill, log_files, open_log, storage_threads

KEY = PartitionKey(TopicUid("6f0c-11"), PartitionId(3))
DESCRIPTION = PartitionDescription(TopicName("default", "flights"), KEY, {"partitions": 6})
RETAINED = replace(DESCRIPTION, spec={"deletionPolicy": "Retain"})
NOW_MS = 1_000_000


@pytest.fixture
def store(tmp_path: Path) -> PartitionStore:
    return store_in(tmp_path)


def store_in(root: Path, deleted: list[PartitionKey] | None = None) -> PartitionStore:
    return PartitionStore(root, ([] if deleted is None else deleted).append)


def test_should_hold_what_was_prepared(store: PartitionStore, tmp_path: Path) -> None:
    other = replace(DESCRIPTION, key=PartitionKey(TopicUid("6f0c-11"), PartitionId(0)))
    path = store.prepare(DESCRIPTION, NOW_MS)
    store.prepare(other, NOW_MS)

    assert path == tmp_path / "partitions" / "6f0c-11-3"
    assert store.has(KEY)
    assert store.partitions() == [StoredPartition(other.key, other), StoredPartition(KEY, DESCRIPTION)]
    assert store.orphans() == []


def test_should_tell_a_topic_of_the_same_name_by_its_uid(store: PartitionStore) -> None:
    path = store.prepare(DESCRIPTION, NOW_MS)
    again = replace(DESCRIPTION, key=PartitionKey(TopicUid("77aa-22"), PartitionId(3)))
    assert store.prepare(again, NOW_MS) != path


def test_should_write_the_description_anew_when_the_topic_has_changed(store: PartitionStore) -> None:
    store.prepare(DESCRIPTION, NOW_MS)
    store.prepare(RETAINED, NOW_MS)
    assert store.partitions() == [StoredPartition(KEY, RETAINED)]


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"format": 2}', b'{"format": 1, "namespace": "default"}'])
def test_should_keep_the_data_when_its_description_is_damaged(store: PartitionStore, content: bytes) -> None:
    path = store.prepare(DESCRIPTION, NOW_MS)
    (path / "partition.json").write_bytes(content)
    assert store.partitions() == [StoredPartition(KEY, None)]
    store.orphan(KEY, NOW_MS)
    assert store.overdue(NOW_MS + 10**12, 1) == []
    assert store.prepare(DESCRIPTION, NOW_MS) == path
    assert store.partitions() == [StoredPartition(KEY, DESCRIPTION)]


def test_should_take_orphaned_data_back_when_the_uid_returns(store: PartitionStore) -> None:
    (store.prepare(DESCRIPTION, NOW_MS) / "note").write_bytes(b"data")
    store.orphan(KEY, NOW_MS)
    assert not store.has(KEY)
    assert store.partitions() == []
    assert store.orphans() == [StoredPartition(KEY, DESCRIPTION)]

    path = store.prepare(DESCRIPTION, NOW_MS)

    assert (path / "note").read_bytes() == b"data"
    assert not (path / "orphaned-since").exists()
    assert store.orphans() == []
    assert not store.restore(KEY)


def test_should_let_another_topic_go_on_with_orphaned_data_once(store: PartitionStore, tmp_path: Path) -> None:
    other = replace(DESCRIPTION, key=PartitionKey(TopicUid("77aa-22"), KEY.partition))
    (store.prepare(RETAINED, NOW_MS) / "note").write_bytes(b"data")
    store.orphan(KEY, NOW_MS)
    store.adopt(KEY, other.key)
    assert (store.orphans(), store.has(KEY)) == ([], False)
    assert store.partitions() == [StoredPartition(other.key, RETAINED)], (
        "as a crash would leave it: still to be retained"
    )
    path = store.prepare(other, NOW_MS)
    assert store.partitions() == [StoredPartition(other.key, other)]
    assert sorted(file.name for file in path.iterdir() if file.suffix == "" and "since" in file.name) == []
    assert (path / "note").read_bytes() == b"data"
    store.adopt(KEY, other.key)
    assert (path / "note").read_bytes() == b"data", "it was done before"


def test_should_not_pretend_to_adopt_what_is_not_there(store: PartitionStore) -> None:
    with pytest.raises(StorageFailedError):
        store.adopt(KEY, PartitionKey(TopicUid("77aa-22"), KEY.partition))


def test_should_purge_orphans_only_after_their_retention(store: PartitionStore) -> None:
    store.prepare(DESCRIPTION, NOW_MS)
    store.orphan(KEY, NOW_MS)
    assert store.overdue(NOW_MS + 99, 100) == []
    assert not store.purge(KEY, NOW_MS + 99, 100)
    assert store.overdue(NOW_MS + 100, 100) == [KEY]
    assert store.purge(KEY, NOW_MS + 100, 100)
    assert store.orphans() == []
    assert not store.purge(KEY, NOW_MS + 100, 100)


def test_should_not_purge_what_was_orphaned_anew_since_it_was_found_overdue(store: PartitionStore) -> None:
    store.prepare(DESCRIPTION, NOW_MS)
    store.orphan(KEY, NOW_MS)
    assert store.overdue(NOW_MS + 100, 100) == [KEY]
    store.restore(KEY)
    assert not store.purge(KEY, NOW_MS + 100, 100)
    store.orphan(KEY, NOW_MS + 100)

    assert not store.purge(KEY, NOW_MS + 100, 100)

    assert store.orphans() == [StoredPartition(KEY, DESCRIPTION)]


@pytest.mark.parametrize("policy", ["Retain", "SomethingNewer"])
def test_should_never_purge_what_is_to_be_retained(store: PartitionStore, policy: str) -> None:
    store.prepare(replace(DESCRIPTION, spec={"deletionPolicy": policy}), NOW_MS)
    store.orphan(KEY, NOW_MS)
    assert store.overdue(NOW_MS + 10**12, 100) == []
    assert not store.purge(KEY, NOW_MS + 10**12, 100)
    assert len(store.orphans()) == 1


@pytest.mark.parametrize("content", [None, b"", b"headrace"])
def test_should_wait_anew_when_nobody_knows_since_when_data_is_orphaned(
    store: PartitionStore, tmp_path: Path, content: bytes | None
) -> None:
    store.prepare(DESCRIPTION, NOW_MS)
    store.orphan(KEY, NOW_MS)
    since = tmp_path / "orphaned" / directory_name(KEY) / "orphaned-since"
    since.unlink()
    if content is not None:
        since.write_bytes(content)
    assert store.overdue(NOW_MS + 500, 100) == []
    assert store.overdue(NOW_MS + 599, 100) == []
    assert store.overdue(NOW_MS + 600, 100) == [KEY]


def test_should_delete_for_good_wherever_the_data_is(store: PartitionStore, tmp_path: Path) -> None:
    store.prepare(DESCRIPTION, NOW_MS)
    store.delete(KEY)
    store.prepare(DESCRIPTION, NOW_MS)
    store.orphan(KEY, NOW_MS)
    store.delete(KEY)
    store.delete(KEY)
    assert store.partitions() == store.orphans() == []
    assert list((tmp_path / ".trash").iterdir()) == []


def test_should_tell_whose_data_has_left_the_disk(tmp_path: Path) -> None:
    deleted: list[PartitionKey] = []
    store = store_in(tmp_path, deleted)
    store.prepare(DESCRIPTION, NOW_MS)
    store.orphan(KEY, NOW_MS)
    assert not store.purge(KEY, NOW_MS, retention_ms=1)
    store.restore(KEY)
    assert deleted == []
    store.orphan(KEY, NOW_MS)
    assert store.purge(KEY, NOW_MS + 1, retention_ms=1)
    store.delete(KEY)
    assert deleted == [KEY, KEY]


def test_should_finish_what_a_crash_left_in_the_trash(store: PartitionStore, tmp_path: Path) -> None:
    store.prepare(DESCRIPTION, NOW_MS).rename(tmp_path / ".trash" / "half-deleted")
    store = store_in(tmp_path)
    assert list((tmp_path / ".trash").iterdir()) == []
    assert store.partitions() == []


def test_should_leave_other_files_alone(store: PartitionStore, tmp_path: Path) -> None:
    (tmp_path / "partitions" / "README").write_bytes(b"")
    (tmp_path / "partitions" / "notes").mkdir()
    assert store.partitions() == []


def test_should_keep_seats_void_for_all_later_starts(store: PartitionStore) -> None:
    path = store.prepare(DESCRIPTION, NOW_MS)
    assert store.void_before(KEY) == 0
    store.write_void_before(KEY, Incarnation(5))
    assert store.void_before(KEY) == 5
    (path / "void-before").write_bytes(b"")
    assert store.void_before(KEY) is None


def test_should_void_the_seats_of_all_partitions_that_may_have_lost_something(store: PartitionStore) -> None:
    fsync, replicated, orphaned, unknown = (PartitionKey(TopicUid("6f0c-11"), PartitionId(i)) for i in range(4))
    for key in (fsync, replicated, orphaned, unknown):
        spec = {} if key == fsync else {"durability": "Replicated"}
        path = store.prepare(replace(DESCRIPTION, key=key, spec=spec), NOW_MS)
    (path / "partition.json").write_bytes(b"")
    (path / "void-before").write_bytes(b"damaged")
    store.orphan(orphaned, NOW_MS)

    store.void_all(Incarnation(5), in_memory_only=True)
    store.restore(orphaned)
    assert [store.void_before(key) for key in (fsync, replicated, orphaned, unknown)] == [0, 5, 5, 5]

    store.void_all(Incarnation(4), in_memory_only=False)
    assert [store.void_before(key) for key in (fsync, replicated, orphaned, unknown)] == [4, 5, 5, 5]


def test_should_say_what_the_disk_refused(store: PartitionStore) -> None:
    with pytest.raises(StorageFailedError, match=r"orphaning .* failed"):
        store.orphan(KEY, NOW_MS)


@given(st.text("abc-019", min_size=1), st.integers(0, 1023))
def test_should_find_the_key_again_in_a_directory_s_name(uid: str, partition: int) -> None:
    key = PartitionKey(TopicUid(uid), PartitionId(partition))
    assert parse_directory_name(directory_name(key)) == key


@pytest.mark.parametrize("name", ["", "x", "-1", "x-", "x-1a", "x-١"])
def test_should_find_no_key_in_other_names(name: str) -> None:
    assert parse_directory_name(name) is None


def test_should_read_the_description_that_was_written() -> None:
    assert PartitionDescription.parse(RETAINED.format()) == RETAINED
    with pytest.raises(DamagedFileError, match="format is 2, this version reads 1"):
        PartitionDescription.parse(b'{"format": 2}')


def test_should_tell_how_far_a_log_reaches_that_was_never_closed(store: PartitionStore) -> None:
    assert store.last_known(KEY) == HeldLog(NO_EPOCH, Offset(0))
    path = store.prepare(DESCRIPTION, NOW_MS)
    assert store.last_known(KEY) == HeldLog(NO_EPOCH, Offset(0))
    with storage_threads() as threads:
        log = open_log(path, threads, replace(CONFIG, segment_bytes=20_000))
        fill(log, 50)
        fill(log, 50, epoch=LeaderEpoch(7))

        assert store.last_known(KEY) == HeldLog(LeaderEpoch(7), Offset(100)), "as after kill -9"
        store.orphan(KEY, NOW_MS)
        assert store.last_known(KEY) == HeldLog(LeaderEpoch(7), Offset(100))


def test_should_tell_how_far_a_log_reaches_that_is_moved_meanwhile(
    store: PartitionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with storage_threads() as threads:
        fill(open_log(store.prepare(DESCRIPTION, NOW_MS), threads), 50)
    moves: list[Callable[[], object]] = [lambda: store.orphan(KEY, NOW_MS), lambda: store.restore(KEY)] * 2

    def is_dir(path: Path) -> bool:
        """It was, a moment ago."""
        was_there = os.path.isdir(path)
        if moves and path.parent.name == "partitions":
            moves.pop(0)()
        return was_there

    monkeypatch.setattr(Path, "is_dir", is_dir)
    assert store.last_known(KEY).log_end == 50
    assert moves == []


def test_should_tell_of_a_damaged_log_what_recovery_would_keep(store: PartitionStore) -> None:
    path = store.prepare(DESCRIPTION, NOW_MS)
    with storage_threads() as threads:
        fill(open_log(path, threads), 10)
        (segment,) = log_files(path)
        content = segment.read_bytes()
        for damaged in (content[:-1], content[:-2000] + bytes(2000), content[: len(content) // 2]):
            segment.write_bytes(damaged)
            known = store.last_known(KEY)
            assert segment.read_bytes() == damaged, "nothing is changed"
            assert known.log_end == open_log(path, threads).log_end_offset < 10
    segment.write_bytes(content)
    assert store.last_known(KEY).log_end == 10
    PartitionFiles(path).write_cut_at(LogPoint(Offset(9), Offset(0), len(content) * 9 // 10, NOW_MS))
    assert store.last_known(KEY).log_end == 9


def test_should_not_call_a_log_empty_that_cannot_be_read(store: PartitionStore) -> None:
    path = store.prepare(DESCRIPTION, NOW_MS)
    (segment,) = log_files(path)
    segment.unlink()
    segment.symlink_to(segment)
    assert store.last_known(KEY).trouble.startswith(f"reading {shown(path)} failed: Too many levels of symbolic links")
