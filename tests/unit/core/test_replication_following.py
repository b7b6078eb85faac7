"""A follower agrees with its leader's log before it takes anything from it, and votes only then."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from headrace.core.errors import DivergedLogError
from headrace.core.log.epochs import NO_EPOCH, EpochEnd, EpochStart, LeaderEpochs
from headrace.core.log.group_commit import GroupCommit, Sync
from headrace.core.replication.events import (
    AskEpochEnd,
    Closed,
    Connected,
    CutRefused,
    DeleteBelow,
    Disconnected,
    Effect,
    EpochAnswered,
    Fetch,
    Follow,
    Offered,
    Received,
    Report,
    StartAnew,
    StateApplied,
    Synced,
    Truncate,
    Truncated,
    Unfollow,
)
from headrace.core.replication.followers import Ends
from headrace.core.replication.following import Following, Phase
from headrace.core.resources.partition_set import PartitionState
from headrace.core.resources.topic import Durability
from headrace.core.types import BrokerId, LeaderEpoch, Offset, PartitionEpoch
from tests.support.partition_sets import partition_state, seat

ME, LEADER, THIRD = seat(0), seat(1), seat(2)
STATE = partition_state(
    leader=LEADER, leader_epoch=LeaderEpoch(3), replicas=tuple(BrokerId(each) for each in range(3)), isr=(LEADER,)
)
EPOCH = LeaderEpoch(3)


@dataclass
class Log:
    log_end_offset: Offset
    epochs: LeaderEpochs
    log_start_offset: Offset


class Follower:
    """With a log of these (epoch, first offset)."""

    def __init__(self, *epochs: tuple[int, int], log_end: int = 0, durability: Durability = Durability.FSYNC) -> None:
        starts = [EpochStart(LeaderEpoch(epoch), Offset(offset)) for epoch, offset in epochs]
        self.log = Log(Offset(log_end), LeaderEpochs(starts), Offset(0))
        self.commit = GroupCommit(durability, Offset(log_end), Offset(log_end))
        self.following = Following(ME, self.log, self.commit)

    def named(self, state: PartitionState = STATE, **changes: Any) -> list[Effect]:
        return self.following.step(StateApplied(replace(state, **changes)))

    def connected(self) -> list[Effect]:
        self.named()
        return self.following.step(Connected(EPOCH))

    def answered(self, epoch: int, end: int, *, leader_epoch: LeaderEpoch = EPOCH) -> list[Effect]:
        return self.following.step(EpochAnswered(leader_epoch, EpochEnd(LeaderEpoch(epoch), Offset(end))))

    def cut(self, end: int) -> list[Effect]:
        self.log.log_end_offset = Offset(end)
        self.log.epochs.cut(Offset(end))
        return self.following.step(Truncated())

    def begun(self, offset: int) -> list[Effect]:
        """Anew, empty, and with no epoch."""
        self.log.log_start_offset = self.log.log_end_offset = Offset(offset)
        self.log.epochs.cut(Offset(0))
        return self.following.step(Truncated())

    def replicated(self, count: int) -> list[Effect]:
        self.log.epochs.assign(EPOCH, self.log.log_end_offset)
        self.log.log_end_offset = Offset(self.log.log_end_offset + count)
        return self.following.step(Received(EPOCH, 100, Offset(0), Offset(0)))

    def offered(self, base: int | None, *, log_start: int = 0, high_watermark: int = 0) -> list[Effect]:
        begins = None if base is None else Offset(base)
        return self.following.step(Offered(EPOCH, begins, Offset(high_watermark), Offset(log_start)))

    def fetching(self, **changes: Any) -> "Follower":
        self.named(**changes)
        self.following.step(Connected(EPOCH))
        self.answered(self.log.epochs.latest, self.log.log_end_offset)
        assert self.following.accepts(EPOCH)
        return self


def fetch_from(offset: int) -> list[Effect]:
    return [Fetch(EPOCH, Offset(offset)), Report(EPOCH, Ends(Offset(offset), Offset(offset)))]


def test_should_fetch_at_once_what_an_empty_log_lacks() -> None:
    follower = Follower()
    assert follower.named() == [Follow(LEADER, EPOCH)]
    assert follower.following.step(Connected(EPOCH)) == fetch_from(0)


def test_should_ask_where_its_last_epoch_ends_and_cut_what_the_leader_lacks() -> None:
    follower = Follower((1, 0), (2, 5), log_end=9)
    assert follower.connected() == [AskEpochEnd(EPOCH, LeaderEpoch(2))]
    assert not follower.following.accepts(EPOCH)
    (cut,) = follower.answered(2, 7)
    assert isinstance(cut, Truncate)
    assert cut.end == 7
    assert follower.commit.vouched_end == 7, "nothing above is vouched for from now on"
    assert follower.cut(7) == fetch_from(7)
    assert follower.following.accepts(EPOCH)


def test_should_ask_again_until_both_logs_agree() -> None:
    follower = Follower((1, 0), (2, 5), log_end=9)
    follower.connected()
    (cut,) = follower.answered(1, 3)
    assert isinstance(cut, Truncate)
    assert cut.end == 3
    assert follower.cut(3) == fetch_from(3)

    follower = Follower((0, 0), (2, 5), log_end=9)
    follower.connected()
    follower.answered(1, 7)
    assert follower.cut(5) == [AskEpochEnd(EPOCH, LeaderEpoch(0))], "the epoch below may differ, too"
    assert follower.answered(0, 5) == fetch_from(5)


def test_should_say_what_it_holds_after_each_append_and_sync() -> None:
    follower = Follower()
    follower.connected()
    assert follower.replicated(4) == [Sync(Offset(4), "append"), Report(EPOCH, Ends(Offset(4), Offset(0)))]
    assert follower.following.step(Synced(Offset(4))) == [Report(EPOCH, Ends(Offset(4), Offset(4)))]


def test_should_agree_anew_on_every_stream() -> None:
    follower = Follower((3, 0), log_end=4)
    follower.connected()
    follower.answered(3, 4)
    follower.following.step(Disconnected())
    assert not follower.following.accepts(EPOCH)
    assert follower.following.step(Connected(EPOCH)) == [AskEpochEnd(EPOCH, EPOCH)]


def test_should_drop_answers_of_another_epoch() -> None:
    follower = Follower((1, 0), log_end=9)
    follower.connected()
    assert follower.answered(1, 3, leader_epoch=LeaderEpoch(2)) == []
    assert follower.named(leader_epoch=LeaderEpoch(4), leader=THIRD) == [Follow(THIRD, LeaderEpoch(4))]
    assert follower.answered(1, 3) == []
    assert follower.following.step(Connected(EPOCH)) == []
    assert follower.following.phase is Phase.APART


def test_should_finish_a_cut_before_it_asks_another_leader() -> None:
    follower = Follower((1, 0), (2, 5), log_end=9)
    follower.connected()
    follower.answered(2, 7)
    assert follower.answered(2, 6) == [], "one answer, one cut"
    follower.named(leader_epoch=LeaderEpoch(4), leader=THIRD)
    assert follower.following.step(Connected(LeaderEpoch(4))) == []
    assert follower.cut(7) == [AskEpochEnd(LeaderEpoch(4), LeaderEpoch(2))]


def test_should_rest_after_a_cut_when_nobody_leads_meanwhile() -> None:
    follower = Follower((2, 0), log_end=9)
    follower.connected()
    follower.answered(2, 7)
    assert isinstance(follower.named(leader=None)[0], Unfollow)
    follower.following.step(Disconnected())
    assert follower.cut(7) == []
    assert follower.following.phase is Phase.RESTING


@pytest.mark.parametrize(
    "changes",
    [
        {"leader": ME, "leader_epoch": LeaderEpoch(4)},
        {"leader": None},
        {"leader": THIRD, "leader_epoch": LeaderEpoch(4), "replicas": (BrokerId(1), BrokerId(2))},
        {"leader": THIRD, "leader_epoch": LeaderEpoch(2)},
        {"leader": THIRD},
    ],
    ids=["leads itself", "nobody leads", "is no replica", "the epoch falls", "the epoch has another leader"],
)
def test_should_follow_nobody_when_it(changes: dict[str, Any]) -> None:
    follower = Follower()
    follower.connected()
    assert isinstance(follower.named(**changes)[0], Unfollow)
    assert follower.named(**changes) == []
    assert not follower.following.accepts(EPOCH)


def test_should_go_on_when_a_state_changes_nothing_for_it() -> None:
    follower = Follower()
    follower.connected()
    assert follower.named(partition_epoch=PartitionEpoch(2), isr=(LEADER, ME)) == []
    assert follower.following.accepts(EPOCH)


def test_should_not_follow_in_an_epoch_below_its_log() -> None:
    follower = Follower((4, 0), log_end=2)
    assert follower.named() == []
    assert follower.following.leader is None


def test_should_know_as_committed_what_it_has_itself() -> None:
    follower = Follower((3, 0), log_end=4)
    follower.connected()
    assert follower.following.step(Received(EPOCH, 0, Offset(4), Offset(0))) == []
    assert follower.following.high_watermark == 0, "not before both logs agree"
    follower.answered(3, 4)
    for heard, known in ((9, 4), (2, 4)):
        assert follower.following.step(Received(EPOCH, 0, Offset(heard), Offset(0))) == fetch_from(4)[1:], "it is alive"
        assert follower.following.high_watermark == known


def test_should_report_nothing_while_it_is_apart() -> None:
    follower = Follower()
    follower.connected()
    follower.replicated(4)
    follower.following.step(Disconnected())
    assert follower.following.step(Synced(Offset(4))) == []


IN_SYNC: dict[str, Any] = {"isr": (LEADER, ME)}


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


def test_should_leave_a_gap_that_nothing_explains_to_the_log() -> None:
    follower = Follower().fetching()
    assert follower.offered(5, log_start=0) == []
    assert follower.following.accepts(EPOCH), "the log refuses it"


def test_should_keep_what_is_committed_for_as_long_as_it_is_in_sync() -> None:
    follower = Follower((2, 0), log_end=9).fetching(**IN_SYNC)
    follower.following.step(Received(EPOCH, 0, Offset(8), Offset(0)))
    follower.following.step(Disconnected())
    follower.following.step(Connected(EPOCH))
    with pytest.raises(DivergedLogError, match="0@1 is in sync and holds what is committed, up to 8"):
        follower.answered(2, 7)
    assert not follower.following.is_cutting
    (cut,) = follower.answered(2, 8)
    assert isinstance(cut, Truncate)
    assert not cut.allow_below_high_watermark
    follower.cut(8)

    follower.named(partition_epoch=PartitionEpoch(2), isr=(LEADER,))
    follower.following.step(Connected(EPOCH))
    (cut,) = follower.answered(2, 7)
    assert isinstance(cut, Truncate)
    assert cut.allow_below_high_watermark, "nobody relies on it any more"


def test_should_try_again_when_its_log_cannot_be_cut() -> None:
    follower = Follower((1, 0), (2, 5), log_end=9)
    follower.connected()
    follower.answered(2, 7)
    reason = "the log cannot be cut: a broken batch"
    assert follower.following.step(CutRefused("a broken batch")) == [Unfollow(reason), Follow(LEADER, EPOCH)]
    assert follower.commit.vouched_end == 9
    follower.following.step(Connected(EPOCH))
    follower.answered(2, 7)
    follower.named(leader=None)
    assert follower.following.step(CutRefused("a broken batch")) == []


def test_should_delete_what_the_leader_has_deleted_and_what_is_committed() -> None:
    follower = Follower((3, 0), log_end=9).fetching()
    (_, delete) = follower.following.step(Received(EPOCH, 0, Offset(4), Offset(5)))
    assert isinstance(delete, DeleteBelow)
    assert delete.offset == 4, "the rest when that is known as committed"
    assert len(follower.following.step(Received(EPOCH, 0, Offset(4), Offset(5)))) == 1, "it is said once"
    (_, delete) = follower.following.step(Received(EPOCH, 0, Offset(6), Offset(5)))
    assert isinstance(delete, DeleteBelow)
    assert delete.offset == 5


def test_should_not_follow_in_an_epoch_below_one_that_it_was_told_of() -> None:
    log = Log(Offset(0), LeaderEpochs(), Offset(0))
    following = Following(ME, log, GroupCommit(Durability.FSYNC, Offset(0), Offset(0)), LeaderEpoch(4))
    assert following.step(StateApplied(STATE)) == []


def test_should_follow_nobody_any_more_when_it_is_closed() -> None:
    follower = Follower().fetching()
    assert follower.following.step(Closed("it goes")) == [Unfollow("it goes")]
    assert follower.named(leader_epoch=LeaderEpoch(4)) == []
    assert follower.following.step(Disconnected()) == []
