"""A follower agrees with its leader's log before it takes anything from it, and votes only then."""

from typing import Any

import pytest

from headrace.core.errors import DivergedLogError
from headrace.core.log.epochs import LeaderEpochs
from headrace.core.log.group_commit import GroupCommit, Sync
from headrace.core.replication.events import (
    AskEpochEnd,
    Closed,
    Connected,
    CutRefused,
    Disconnected,
    Follow,
    Received,
    Report,
    StateApplied,
    Synced,
    Truncate,
    Unfollow,
)
from headrace.core.replication.following import Following, Phase
from headrace.core.replication.isr import Ends
from headrace.core.resources.topic import Durability
from headrace.core.types import BrokerId, LeaderEpoch, Offset, PartitionEpoch
from tests.support.follower import EPOCH, IN_SYNC, LEADER, ME, STATE, THIRD, Follower, Log, fetch_from


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


def test_should_not_follow_in_an_epoch_below_one_that_it_was_told_of() -> None:
    log = Log(Offset(0), LeaderEpochs(), Offset(0))
    following = Following(ME, log, GroupCommit(Durability.FSYNC, Offset(0), Offset(0)), LeaderEpoch(4))
    assert following.step(StateApplied(STATE)) == []


def test_should_follow_nobody_any_more_when_it_is_closed() -> None:
    follower = Follower().fetching()
    assert follower.following.step(Closed("it goes")) == [Unfollow("it goes")]
    assert follower.named(leader_epoch=LeaderEpoch(4)) == []
    assert follower.following.step(Disconnected()) == []
