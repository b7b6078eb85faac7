"""Logs that do not begin at 0: a follower begins anew where it must, and votes only once nothing is missing."""

import pytest

from headrace.core.errors import DivergedLogError
from headrace.core.log.epochs import NO_EPOCH
from headrace.core.replication.events import (
    AskEpochEnd,
    Connected,
    DeleteBelow,
    Follow,
    Received,
    StartAnew,
    Truncate,
    Unfollow,
)
from headrace.core.types import LeaderEpoch, Offset, PartitionEpoch
from tests.support.follower import EPOCH, IN_SYNC, LEADER, Follower, fetch_from
from tests.support.partition_sets import seat


def test_should_begin_anew_where_the_leader_has_deleted_all_that_it_lacks() -> None:
    follower = Follower((3, 0), log_end=4).fetching()
    assert follower.offered(None, log_start=9, high_watermark=12) == [], "what is left there comes soon"
    reason = f"it ends at 4, the log of {LEADER} starts at 9"
    expected = [Unfollow(reason), StartAnew(Offset(8), reason), Follow(LEADER, EPOCH)]
    assert follower.offered(8, log_start=9, high_watermark=12) == expected, "the first batch begins below the start"
    assert not follower.following.accepts(EPOCH)
    assert follower.offered(8, log_start=9, high_watermark=12) == []
    assert follower.commit.vouched_end == 0

    assert follower.following.step(Connected(EPOCH)) == []
    assert follower.begun(8) == [AskEpochEnd(EPOCH, EPOCH)], "how far does the leader's log reach?"
    assert follower.following.high_watermark == 8, "nothing below its start is not committed"
    assert follower.answered(3, 12) == fetch_from(8)[:1]
    assert follower.offered(8, log_start=9, high_watermark=12) == []
    assert follower.following.step(Received(EPOCH, 0, Offset(12), Offset(9)))[:1] == fetch_from(8)[1:]


def test_should_not_vote_before_it_knows_that_nothing_is_missing_below_its_start() -> None:
    """It began anew under another leader; this one, out of sync then, still has records there."""
    follower = Follower().fetching()
    follower.offered(20, log_start=20, high_watermark=30)
    follower.begun(20)
    follower.following.step(Connected(EPOCH))
    assert follower.answered(3, 30) == fetch_from(20)[:1]
    assert follower.following.step(Received(EPOCH, 0, Offset(30), Offset(5))) == []
    reason = f"it is empty, and the log of {LEADER} starts below it, at 5"
    assert follower.offered(20, log_start=5, high_watermark=30) == [
        Unfollow(reason),
        StartAnew(Offset(0), reason),
        Follow(LEADER, EPOCH),
    ]
    follower.following.step(Connected(EPOCH))
    assert follower.begun(0) == fetch_from(0)


def test_should_vote_at_once_when_it_is_in_sync() -> None:
    """Then what lies below its start was deleted, by a leader that knew more of deletions than this one."""
    follower = Follower().fetching()
    follower.offered(20, log_start=20, high_watermark=30)
    follower.begun(20)
    follower.named(partition_epoch=PartitionEpoch(2), **IN_SYNC)
    follower.following.step(Connected(EPOCH))
    assert follower.answered(3, 30) == fetch_from(20)
    assert follower.offered(20, log_start=5, high_watermark=30) == []


def test_should_begin_as_a_new_replica_where_the_logs_part_below_its_start() -> None:
    """A leader out of sync was elected: what was deleted here is not what that leader holds there."""
    follower = Follower((2, 5), log_end=20)
    follower.log.log_start_offset = Offset(12)
    follower.following.high_watermark = Offset(15)
    follower.connected()
    cut = follower.answered(2, 8)[1]
    assert isinstance(cut, StartAnew)
    assert cut.offset == 0
    assert follower.commit.vouched_end == 0
    follower.following.step(Connected(EPOCH))
    assert follower.begun(0) == fetch_from(0)
    assert follower.following.high_watermark == 0


def test_should_keep_its_start_for_as_long_as_it_is_in_sync() -> None:
    follower = Follower((2, 5), log_end=20)
    follower.log.log_start_offset, follower.following.high_watermark = Offset(12), Offset(15)
    follower.named(**IN_SYNC)
    follower.following.step(Connected(EPOCH))
    with pytest.raises(DivergedLogError, match="by the log of 1@1 it should be cut to 0"):
        follower.answered(2, 8)
    assert not follower.following.is_cutting


def test_should_keep_its_start_while_a_seat_of_an_older_life_may_be_renewed() -> None:
    follower = Follower((2, 5), log_end=20)
    follower.log.log_start_offset, follower.following.high_watermark = Offset(12), Offset(15)
    follower.named(isr=(LEADER, seat(0, 0)))
    follower.following.step(Connected(EPOCH))
    with pytest.raises(DivergedLogError, match="by the log of 1@1 it should be cut to 0"):
        follower.answered(2, 8)


def test_should_begin_anew_where_the_leader_has_nothing_left() -> None:
    follower = Follower().fetching()
    cut = follower.offered(None, log_start=9, high_watermark=9)[1]
    assert isinstance(cut, StartAnew)
    assert cut.offset == 9


def test_should_not_end_below_what_the_leader_has_deleted() -> None:
    """Its records of this log's epochs are deleted, so all that is committed of them, even of a member of the ISR."""
    follower = Follower((1, 0), log_end=7)
    follower.following.high_watermark = Offset(5)
    follower.named(**IN_SYNC)
    assert follower.following.step(Connected(EPOCH)) == [AskEpochEnd(EPOCH, LeaderEpoch(1))]
    reason = "the leader has nothing of epoch 1 or before"
    expected = [Unfollow(reason), StartAnew(Offset(7), reason), Follow(LEADER, EPOCH)]
    assert follower.answered(NO_EPOCH, 7) == expected
    follower.following.step(Connected(EPOCH))
    assert follower.begun(7) == [AskEpochEnd(EPOCH, EPOCH)]
    assert follower.answered(NO_EPOCH, 7) == fetch_from(7)


def test_should_cut_to_where_a_batch_begins_that_compaction_has_joined_across_its_end() -> None:
    follower = Follower((3, 0), log_end=9).fetching()
    follower.following.step(Received(EPOCH, 0, Offset(9), Offset(0)))
    reason = f"{LEADER} holds one batch from 6 to beyond the end of this log"
    assert follower.offered(6) == [
        Unfollow(reason),
        Truncate(Offset(6), reason, allow_below_high_watermark=True),
        Follow(LEADER, EPOCH),
    ]
    assert follower.cut(6) == []
    assert follower.following.high_watermark == 6
    assert follower.following.step(Connected(EPOCH)) == [AskEpochEnd(EPOCH, EPOCH)]


def test_should_begin_anew_where_its_own_log_starts_within_such_a_batch() -> None:
    follower = Follower((3, 0), log_end=9).fetching()
    follower.log.log_start_offset = Offset(7)
    reason = f"{LEADER} holds one batch from 6 to beyond the end of this log"
    assert follower.offered(6) == [Unfollow(reason), StartAnew(Offset(0), reason), Follow(LEADER, EPOCH)]


def test_should_delete_what_the_leader_has_deleted_and_what_is_committed() -> None:
    follower = Follower((3, 0), log_end=9).fetching()
    (_, delete) = follower.following.step(Received(EPOCH, 0, Offset(4), Offset(5)))
    assert isinstance(delete, DeleteBelow)
    assert delete.offset == 4, "the rest when that is known as committed"
    assert len(follower.following.step(Received(EPOCH, 0, Offset(4), Offset(5)))) == 1, "it is said once"
    (_, delete) = follower.following.step(Received(EPOCH, 0, Offset(6), Offset(5)))
    assert isinstance(delete, DeleteBelow)
    assert delete.offset == 5
