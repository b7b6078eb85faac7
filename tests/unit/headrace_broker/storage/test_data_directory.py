"""A data directory: locked, recognised after a restart, never taken for another disk.

The epochs that a broker has seen: on disk before anybody acts on them, and missed where they are lost.

The partitions that a broker gives away, on its disk.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.core.errors import DiskFullError, StorageFailedError
from headrace.core.types import Incarnation, LeaderEpoch, PartitionEpoch, PartitionId, PartitionKey, TopicName, TopicUid
from headrace_broker.storage.data_directory import (
    DataDirectory,
    DataDirectoryInUseError,
    GivingAway,
    NotADataDirectoryError,
    keep_private,
)
from headrace_broker.storage.partition_store import PartitionDescription
from tests.support.failing_disk import before_each
from tests.support.logs import CONFIG, NOW_MS, file_size_limit, fill, flip_bit

KEY = PartitionKey(TopicUid("6f0c-11"), PartitionId(3))
DESCRIPTION = PartitionDescription(TopicName("default", "flights"), KEY, {"partitions": 6})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "data"


@pytest.fixture
def data(path: Path) -> Iterator[DataDirectory]:
    data = DataDirectory.open(path)
    yield data
    data.close(clean=True)


def reopened(path: Path, data: DataDirectory, *, clean: bool) -> DataDirectory:
    data.close(clean=clean)
    again = DataDirectory.open(path)
    again.close(clean=False)
    return again


def test_should_know_nothing_of_a_last_life_when_the_disk_is_new(data: DataDirectory) -> None:
    assert data.read_incarnation() == 0
    assert not data.stopped_cleanly
    assert not data.same_boot


def test_should_be_the_same_disk_with_the_same_incarnation_when_opened_again(path: Path, data: DataDirectory) -> None:
    data.write_incarnation(Incarnation(7), Incarnation(0))
    again = reopened(path, data, clean=True)
    assert again.disk_id == data.disk_id
    assert again.read_incarnation() == 7
    assert again.stopped_cleanly
    assert again.same_boot


def test_should_not_take_a_crash_for_a_clean_stop(path: Path, data: DataDirectory) -> None:
    assert not reopened(path, data, clean=False).stopped_cleanly


def test_should_forget_the_clean_stop_as_soon_as_it_is_opened(path: Path, data: DataDirectory) -> None:
    reopened(path, data, clean=True)
    again = DataDirectory.open(path)
    again.close(clean=False)
    assert not again.stopped_cleanly


@pytest.mark.parametrize("content", [b"headrace boot-id 1 00000000\nother\n", b""])
def test_should_not_take_another_or_an_unknown_boot_for_the_same(
    path: Path, data: DataDirectory, content: bytes
) -> None:
    (path / "boot-id").write_bytes(content)
    assert not reopened(path, data, clean=True).same_boot


def prepared(data: DataDirectory, partition: int, durability: str) -> PartitionKey:
    key = PartitionKey(KEY.uid, PartitionId(partition))
    data.store.prepare(PartitionDescription(DESCRIPTION.topic, key, {"durability": durability}), NOW_MS)
    return key


def test_should_remember_that_memory_was_lost_when_the_first_start_after_it_dies_at_once(
    path: Path, data: DataDirectory
) -> None:
    data.write_incarnation(Incarnation(1), Incarnation(0))
    fsync, replicated = prepared(data, 0, "Fsync"), prepared(data, 1, "Replicated")
    (path / "boot-id").unlink()
    reopened(path, data, clean=False)

    again = reopened(path, data, clean=False)

    assert again.same_boot
    assert (again.store.void_before(fsync), again.store.void_before(replicated)) == (0, 2)


@pytest.mark.parametrize(("clean", "other_boot"), [(True, True), (False, False)])
def test_should_void_nothing_when_memory_was_not_needed(
    path: Path, data: DataDirectory, clean: bool, other_boot: bool
) -> None:
    data.write_incarnation(Incarnation(1), Incarnation(0))
    replicated = prepared(data, 1, "Replicated")
    if other_boot:
        (path / "boot-id").unlink()
    assert reopened(path, data, clean=clean).store.void_before(replicated) == 0


def test_should_void_all_older_seats_when_this_disk_missed_a_life(path: Path, data: DataDirectory) -> None:
    key = prepared(data, 0, "Fsync")
    data.write_incarnation(Incarnation(1), Incarnation(0))
    again = reopened(path, data, clean=False)
    again.write_incarnation(Incarnation(2), Incarnation(1))
    assert again.store.void_before(key) == 0

    # Another process was faster and lived as 2; this one has only written that number down.
    again.write_incarnation(Incarnation(3), Incarnation(2))

    assert again.store.void_before(key) == 3


def test_should_name_directory_and_process_when_it_is_in_use(path: Path, data: DataDirectory) -> None:
    with pytest.raises(DataDirectoryInUseError, match=rf"{path} is in use by process {os.getpid()};") as caught:
        DataDirectory.open(path)
    assert caught.value.details == {"directory": str(path), "pid": os.getpid()}


def test_should_say_another_process_when_nobody_knows_which(path: Path, data: DataDirectory) -> None:
    (path / "lock").write_bytes(b"")
    with pytest.raises(DataDirectoryInUseError, match="in use by another process"):
        DataDirectory.open(path)


def test_should_refuse_a_directory_that_holds_something_else(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    with pytest.raises(NotADataDirectoryError, match=r"is not empty \(it holds photos\)"):
        DataDirectory.open(tmp_path)
    assert not (tmp_path / "disk.json").exists()


def test_should_begin_on_an_empty_volume_and_after_a_crash_in_the_first_start(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "disk.json.new").write_bytes(b"{")
    DataDirectory.open(tmp_path).close(clean=False)


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"format": 1}'])
def test_should_not_guess_when_the_disk_id_is_damaged(path: Path, data: DataDirectory, content: bytes) -> None:
    data.close(clean=True)
    (path / "disk.json").write_bytes(content)
    with pytest.raises(StorageFailedError, match=r"disk\.json is damaged"):
        DataDirectory.open(path)


def test_should_refuse_a_format_of_the_future(path: Path, data: DataDirectory) -> None:
    data.close(clean=True)
    (path / "disk.json").write_bytes(b'{"format": 2, "diskId": "x"}')
    with pytest.raises(NotADataDirectoryError, match="has format 2, this broker reads 1"):
        DataDirectory.open(path)


def test_should_not_guess_when_the_incarnation_is_damaged(path: Path, data: DataDirectory) -> None:
    data.write_incarnation(Incarnation(12), Incarnation(0))
    flip_bit(path / "incarnation", 8 * 34)
    with pytest.raises(StorageFailedError, match="incarnation is damaged"):
        data.read_incarnation()


def test_should_say_what_the_disk_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageFailedError, match=r"opening the data directory .*file failed"):
        DataDirectory.open(tmp_path / "file")


def test_should_open_the_same_log_again(path: Path, data: DataDirectory) -> None:
    log = data.open_log(DESCRIPTION, CONFIG, NOW_MS)
    fill(log, 5)
    log.close()
    data.close(clean=True)

    data = DataDirectory.open(path)
    log = data.open_log(DESCRIPTION, CONFIG, NOW_MS)
    assert (log.log_end_offset, log.recovery.scanned_bytes) == (5, 0)
    log.close()
    data.close(clean=True)


@pytest.fixture
def umask() -> Iterator[None]:
    """What a test sets is undone."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes_below(path: Path) -> tuple[set[str], set[str]]:
    """Of folders and of files."""
    found = [path, *path.rglob("*")]
    folders = {oct(each.stat().st_mode & 0o7777) for each in found if each.is_dir()}
    return folders, {oct(each.stat().st_mode & 0o7777) for each in found if each.is_file()}


def write_all_kinds(path: Path) -> None:
    keep_private(path)
    with closing_down(DataDirectory.open(path)) as data:
        log = data.open_log(DESCRIPTION, CONFIG, now_ms=NOW_MS)
        fill(log, 3)
        log.close()
        data.write_incarnation(Incarnation(1), Incarnation(0))


@contextmanager
def closing_down(data: DataDirectory) -> Iterator[DataDirectory]:
    yield data
    data.close(clean=True)


def test_should_keep_what_it_writes_to_its_user(tmp_path: Path, umask: None) -> None:
    write_all_kinds(tmp_path / "data")
    assert modes_below(tmp_path / "data") == ({"0o700"}, {"0o600"})


def test_should_close_a_directory_that_everybody_could_read(tmp_path: Path, umask: None) -> None:
    (tmp_path / "data").mkdir(mode=0o755)
    write_all_kinds(tmp_path / "data")
    assert modes_below(tmp_path / "data") == ({"0o700"}, {"0o600"})


def test_should_leave_the_group_its_access_on_a_volume_that_was_given_to_it(tmp_path: Path, umask: None) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o2770)
    write_all_kinds(tmp_path / "data")
    assert modes_below(tmp_path / "data") == ({"0o2770"}, {"0o660"})


SEEN_KEY = PartitionKey(TopicUid("6f0c-11"), PartitionId(0))
OTHER = PartitionKey(TopicUid("6f0c-11"), PartitionId(1))
SEEN = {SEEN_KEY: LeaderEpoch(7), OTHER: LeaderEpoch(2)}
FSYNC = PartitionDescription(TopicName("default", "flights"), SEEN_KEY, {"durability": "Fsync"})


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
        data.epochs_seen.write({SEEN_KEY: LeaderEpoch(8), OTHER: LeaderEpoch(1)})
        assert data.epochs_seen.read() == {SEEN_KEY: 8, OTHER: 2}
    with opened(tmp_path) as data:
        assert data.epochs_seen.read() == {SEEN_KEY: 8, OTHER: 2}


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
            data.epochs_seen.write({SEEN_KEY: LeaderEpoch(9)})
        assert data.epochs_seen.read() == SEEN
        data.epochs_seen.write({SEEN_KEY: LeaderEpoch(9)})
        assert data.epochs_seen.read() == {SEEN_KEY: 9, OTHER: 2}


def test_should_forget_a_partition_whose_data_is_deleted(tmp_path: Path) -> None:
    with opened(tmp_path) as data:
        data.store.prepare(FSYNC, NOW_MS)
        data.epochs_seen.write(SEEN)
        data.store.delete(SEEN_KEY)
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
        assert data.store.void_before(SEEN_KEY) == 5
        assert data.epochs_seen.read() == {}
        data.write_incarnation(Incarnation(5), Incarnation(4))
    with opened(tmp_path) as data:
        assert data.epochs_seen.damage == ""
        assert data.store.void_before(SEEN_KEY) == 5


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
    assert "is kept" in caplog.text
