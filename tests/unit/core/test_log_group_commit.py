"""One sync serves every append that came before it started; nothing is vouched for that is not on disk."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.limits import REPLICATED_SYNC_BYTES
from headrace.core.log.group_commit import Effect, GiveUp, GroupCommit, Release, Sync
from headrace.core.resources.topic import Durability
from headrace.core.types import Offset


def commit_of(durability: Durability = Durability.FSYNC) -> GroupCommit:
    return GroupCommit(durability, Offset(0), Offset(0))


def test_should_cover_later_appends_with_the_next_sync_when_one_is_in_flight() -> None:
    commit = commit_of()
    assert commit.appended(Offset(3), 100, 1) == [Sync(Offset(3), "append")]
    assert commit.appended(Offset(5), 100, 2) == []

    release, sync = commit.synced(Offset(3))

    assert release == Release((1,), "durable to 3")
    assert sync == Sync(Offset(5), "appended during the last sync")


def test_should_release_all_and_sync_no_more_when_a_sync_covered_more_than_it_was_asked_to() -> None:
    commit = commit_of()
    commit.appended(Offset(3), 100, 1)
    commit.appended(Offset(5), 100, 2)

    assert commit.synced(Offset(5)) == [Release((1, 2), "durable to 5")]
    assert commit.durable_end == 5


def test_should_sync_for_readers_when_nobody_waits_for_the_append() -> None:
    commit = commit_of()

    assert commit.appended(Offset(3), 100) == [Sync(Offset(3), "append")]
    assert commit.vouched_end == 0
    assert commit.synced(Offset(3)) == []
    assert commit.vouched_end == 3


def test_should_refuse_all_who_wait_and_all_who_come_when_a_sync_fails() -> None:
    commit = commit_of()
    commit.appended(Offset(3), 100, 1)
    commit.appended(Offset(5), 100, 2)

    assert commit.failed("EIO") == [GiveUp((1, 2), "fdatasync failed: EIO")]
    assert commit.appended(Offset(7), 100, 3) == [GiveUp((3,), "fdatasync failed: EIO")]
    assert commit.vouched_end == 0


def test_should_release_at_once_and_sync_in_the_background_when_durability_is_replicated() -> None:
    commit = commit_of(Durability.REPLICATED)

    assert commit.appended(Offset(3), REPLICATED_SYNC_BYTES - 1, 1) == [Release((1,), "durability is Replicated")]
    assert commit.vouched_end == 3
    effects = commit.appended(Offset(5), 1, 2)
    assert effects == [Release((2,), "durability is Replicated"), Sync(Offset(5), "enough is unsynced")]
    assert commit.synced(Offset(5)) == []
    assert commit.durable_end == 5


def test_should_still_answer_those_who_wait_for_a_sync_when_durability_changes_meanwhile() -> None:
    commit = commit_of()
    commit.appended(Offset(3), 100, 1)
    commit.appended(Offset(5), 100, 2)
    assert commit.configured(Durability.REPLICATED) == []

    assert commit.synced(Offset(3)) == [
        Release((1,), "durable to 3"),
        Sync(Offset(5), "appended during the last sync"),
    ]
    assert commit.synced(Offset(5)) == [Release((2,), "durable to 5")]


def test_should_sync_what_was_vouched_for_from_memory_when_durability_becomes_fsync() -> None:
    commit = commit_of(Durability.REPLICATED)
    commit.appended(Offset(3), 100, 1)

    assert commit.configured(Durability.FSYNC) == [Sync(Offset(3), "durability is Fsync now")]
    commit.synced(Offset(3))
    assert commit.configured(Durability.FSYNC) == []
    assert commit.configured(Durability.REPLICATED) == []
    assert commit.configured(Durability.FSYNC) == []


def test_should_not_sync_again_when_durability_changes_after_a_failure() -> None:
    commit = commit_of(Durability.REPLICATED)
    commit.appended(Offset(3), REPLICATED_SYNC_BYTES, 1)
    commit.failed("EIO")

    assert commit.configured(Durability.FSYNC) == []


def test_should_not_accept_a_report_when_no_sync_was_asked_for() -> None:
    with pytest.raises(AssertionError, match="never asked for"):
        commit_of().synced(Offset(1))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.data())
def test_should_release_every_waiter_once_in_order_and_never_early(sizes: list[int], data: st.DataObject) -> None:
    commit, end, released = commit_of(), 0, list[int]()
    ends: list[int] = []
    syncs = deque[Offset]()

    def carry_out(effects: list[Effect]) -> None:
        syncs.extend(effect.up_to for effect in effects if isinstance(effect, Sync))
        released.extend(waiter for effect in effects if isinstance(effect, Release) for waiter in effect.waiters)
        assert len(syncs) <= 1, "one sync in flight at most"
        assert all(ends[waiter] <= commit.durable_end for waiter in released)

    def disk_answers() -> None:
        asked = syncs.popleft()
        carry_out(commit.synced(Offset(data.draw(st.integers(asked, end), label="covered"))))

    for waiter, size in enumerate(sizes):
        end += size
        ends.append(end)
        carry_out(commit.appended(Offset(end), size, waiter))
        while len(syncs) > 0 and data.draw(st.booleans(), label="the disk answers"):
            disk_answers()
    while len(syncs) > 0:
        disk_answers()

    assert released == list(range(len(sizes)))
    assert commit.durable_end == commit.log_end == end
