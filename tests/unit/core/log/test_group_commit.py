"""One sync serves every append that came before it started; nothing is vouched for that is not on disk."""

from collections import deque
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.log.group_commit import REPLICATED_SYNC_BYTES, Effect, GroupCommit, SurrenderSeats, Sync
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

    assert commit.failed("EIO") == SurrenderSeats("fdatasync failed: EIO")
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


def test_should_cap_the_sync_in_flight_when_the_log_is_cut() -> None:
    commit = commit_of()
    commit.appended(Offset(200), 100)
    commit.truncating(Offset(125))
    assert (commit.log_end, commit.vouched_end) == (125, 0)
    assert commit.configured(Durability.REPLICATED) == []
    assert commit.vouched_end == 125
    commit.configured(Durability.FSYNC)

    commit.truncated(Offset(120))
    assert commit.vouched_end == 120
    assert commit.appended(Offset(300), 100) == []
    assert commit.synced(Offset(200)) == [Sync(Offset(300), "appended during the last sync")]

    assert commit.vouched_end == 120
    commit.synced(Offset(300))
    assert commit.vouched_end == 300


def test_should_start_no_sync_before_the_cut_is_made() -> None:
    commit = commit_of()
    commit.appended(Offset(3), 100)
    commit.appended(Offset(9), 100)
    commit.truncating(Offset(5))
    assert commit.synced(Offset(5)) == []
    with pytest.raises(AssertionError, match="before the cut is on disk"):
        commit.appended(Offset(6), 100)
    commit.truncated(Offset(5))
    assert commit.appended(Offset(6), 100) == [Sync(Offset(6), "append")]


def test_should_lower_what_was_durable_when_the_log_is_cut_below() -> None:
    commit = commit_of()
    commit.appended(Offset(200), 100)
    commit.synced(Offset(200))
    commit.truncating(Offset(150))
    assert commit.durable_end == 150
    commit.truncated(Offset(140))
    assert commit.durable_end == commit.log_end == 140
    with pytest.raises(AssertionError, match="announced"):
        commit.truncated(Offset(140))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.data())
def test_should_reach_the_log_end_and_never_vouch_for_more_than_was_synced(
    sizes: list[int], data: st.DataObject
) -> None:
    commit, end, on_disk = commit_of(), 0, 0
    syncs = deque[Offset]()

    def carry_out(effects: Sequence[Effect]) -> None:
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


@given(data=st.data())
def test_should_never_vouch_for_what_a_truncation_took_away(data: st.DataObject) -> None:
    """`log` is the epoch at each offset; a sync reports where the log ended when it began, whatever was cut since."""
    commit, log, on_disk = commit_of(), list[int](), list[int]()
    covering, reports = list[int](), None
    for epoch in range(data.draw(st.integers(1, 30))):
        effects: Sequence[Effect] = []
        match data.draw(st.sampled_from(["append", "truncate", "the disk answers"])):
            case "append":
                log += [epoch] * data.draw(st.integers(1, 9))
                effects = commit.appended(Offset(len(log)), 1)
            case "truncate":
                asked = data.draw(st.integers(0, len(log)), label="asked")
                commit.truncating(Offset(asked))
                assert commit.vouched_end <= asked
                log = log[: data.draw(st.integers(max(0, asked - 3), asked), label="end")]
                commit.truncated(Offset(len(log)))
                on_disk, covering = list(log), covering[: len(log)]
            case _ if reports is not None:
                on_disk = max(on_disk, covering, key=len)
                effects, reports = commit.synced(Offset(reports)), None
        if effects:
            covering, reports = list(log), len(log)
        assert log[: commit.vouched_end] == on_disk[: commit.vouched_end]
        assert commit.vouched_end <= commit.log_end == len(log)
