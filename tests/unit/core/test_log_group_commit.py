"""One sync serves every append that came before it started; nothing is vouched for that is not on disk."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.limits import REPLICATED_SYNC_BYTES
from headrace.core.log.group_commit import Effect, GiveUp, GroupCommit, Sync
from headrace.core.resources.topic import Durability
from headrace.core.types import Offset


def commit_of(durability: Durability = Durability.FSYNC) -> GroupCommit:
    return GroupCommit(durability, Offset(0), Offset(0))


def test_should_cover_later_appends_with_the_next_sync_when_one_is_in_flight() -> None:
    commit = commit_of()
    assert commit.appended(Offset(3), 100) == [Sync(Offset(3), "append")]
    assert commit.appended(Offset(5), 100) == []
    assert commit.vouched_end == 0

    assert commit.synced(Offset(3)) == [Sync(Offset(5), "appended during the last sync")]
    assert commit.vouched_end == 3


def test_should_sync_no_more_when_a_sync_covered_more_than_it_was_asked_to() -> None:
    commit = commit_of()
    commit.appended(Offset(3), 100)
    commit.appended(Offset(5), 100)

    assert commit.synced(Offset(5)) == []
    assert commit.vouched_end == 5


def test_should_give_up_and_never_sync_again_when_a_sync_fails() -> None:
    commit = commit_of()
    commit.appended(Offset(3), 100)

    assert commit.failed("EIO") == [GiveUp("fdatasync failed: EIO")]
    assert commit.configured(Durability.REPLICATED) == []
    assert commit.configured(Durability.FSYNC) == []
    with pytest.raises(AssertionError, match="given up"):
        commit.appended(Offset(5), 100)


def test_should_vouch_at_once_and_sync_in_the_background_when_durability_is_replicated() -> None:
    commit = commit_of(Durability.REPLICATED)

    assert commit.appended(Offset(3), REPLICATED_SYNC_BYTES - 1) == []
    assert commit.vouched_end == 3
    assert commit.appended(Offset(5), 1) == [Sync(Offset(5), "append")]
    assert commit.synced(Offset(5)) == []
    assert commit.durable_end == 5


def test_should_finish_the_sync_that_was_wanted_when_durability_becomes_replicated_meanwhile() -> None:
    commit = commit_of()
    commit.appended(Offset(3), 100)
    commit.appended(Offset(5), 100)
    assert commit.configured(Durability.REPLICATED) == []

    assert commit.vouched_end == 5
    assert commit.synced(Offset(3)) == [Sync(Offset(5), "appended during the last sync")]


def test_should_sync_what_was_vouched_for_from_memory_when_durability_becomes_fsync() -> None:
    commit = commit_of(Durability.REPLICATED)
    commit.appended(Offset(3), 100)

    assert commit.configured(Durability.FSYNC) == [Sync(Offset(3), "durability is Fsync now")]
    commit.synced(Offset(3))
    assert commit.configured(Durability.FSYNC) == []
    assert commit.configured(Durability.REPLICATED) == []
    assert commit.configured(Durability.FSYNC) == []


def test_should_not_accept_a_report_when_no_sync_was_asked_for() -> None:
    with pytest.raises(AssertionError, match="never asked for"):
        commit_of().synced(Offset(1))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.data())
def test_should_reach_the_log_end_and_never_vouch_for_more_than_was_synced(
    sizes: list[int], data: st.DataObject
) -> None:
    commit, end, on_disk = commit_of(), 0, 0
    syncs = deque[Offset]()

    def carry_out(effects: list[Effect]) -> None:
        syncs.extend(effect.up_to for effect in effects if isinstance(effect, Sync))
        assert len(syncs) <= 1, "one sync in flight at most"
        assert commit.vouched_end == on_disk

    def disk_answers() -> None:
        nonlocal on_disk
        on_disk = data.draw(st.integers(syncs.popleft(), end), label="covered")
        carry_out(commit.synced(Offset(on_disk)))

    for size in sizes:
        end += size
        carry_out(commit.appended(Offset(end), size))
        while len(syncs) > 0 and data.draw(st.booleans(), label="the disk answers"):
            disk_answers()
    while len(syncs) > 0:
        disk_answers()

    assert commit.vouched_end == commit.log_end == end
