"""A follower agrees with its leader's log before it takes anything from it, and votes only then.

A follower finds by epochs where its log and the leader's part, whatever has happened before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import DivergedLogError
from headrace.core.log.epochs import NO_EPOCH, EpochEnd, EpochStart, LeaderEpochs
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
from headrace.core.replication.following import Agreed, AskAgain, BeginAnew, Following, Phase, question, reconcile
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


History = list[int]
"""The epoch at each offset; the first offset is 0."""


def epochs_of(history: Sequence[int]) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for offset, epoch in enumerate(history):
        epochs.assign(LeaderEpoch(epoch), Offset(offset))
    return epochs


def answer_of(leader: Sequence[int], epoch: LeaderEpoch) -> EpochEnd:
    return epochs_of(leader).end_of(epoch, Offset(len(leader)))


def reconciled(follower: History, leader: History) -> tuple[Offset, int]:
    """Where the follower's log ends then, and after how many answers."""
    answers, epochs, end = 0, epochs_of(follower), Offset(len(follower))
    while end:  # an empty log has nothing to ask for
        answers += 1
        decision = reconcile(epochs, Offset(0), end, answer_of(leader, epochs.latest))
        assert not isinstance(decision, BeginAnew), "nothing is deleted"
        assert decision.end <= end
        end = decision.end
        epochs.cut(end)
        if isinstance(decision, Agreed):
            break
        assert decision.epoch == epochs.latest
    return end, answers


def common(one: History, other: History) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


@st.composite
def replicas(draw: st.DrawFn) -> list[History]:
    """Any number of elections: each time some replica leads in a new epoch, appends, and others take a part of it.

    Nobody waits for anybody, so that logs branch wherever they can; who takes from a leader holds then what it holds.
    """
    logs: list[History] = [[] for _ in range(draw(st.integers(2, 4)))]
    for epoch in range(1, draw(st.integers(1, 9)) + 1):
        leader = draw(st.sampled_from(logs))
        leader += [epoch] * draw(st.integers(0, 4))
        for follower in logs:
            if follower is not leader and draw(st.booleans()):
                kept = common(follower, leader)
                follower[kept:] = leader[kept : draw(st.integers(kept, len(leader)))]
    return logs


@given(replicas())
def test_should_end_at_the_longest_common_prefix_after_no_more_answers_than_epochs(logs: list[History]) -> None:
    for follower in logs:
        for leader in logs:
            end, answers = reconciled(follower, leader)
            assert end == common(follower, leader)
            assert answers <= len(set(follower))


@dataclass
class Part:
    """Of a history: what lies below `start` is deleted."""

    history: History
    start: int
    epochs: LeaderEpochs

    @classmethod
    def of(cls, history: History, start: int) -> "Part":
        epochs = epochs_of(history)
        epochs.forget_below(Offset(start))
        return cls(list(history), start, epochs)

    def cut(self, end: int) -> None:
        del self.history[end:]
        self.epochs.cut(Offset(end))

    def begin_anew(self, offset: int) -> None:
        self.history = [0] * offset
        self.start, self.epochs = offset, LeaderEpochs()

    def take(self, leader: "Part") -> None:
        """As a follower out of sync does, step by step; asserts that it comes to an end."""
        for _ in range(60):
            if self._agrees(leader):
                if self.epochs.latest == NO_EPOCH and leader.start < self.start:
                    self.begin_anew(0)
                elif len(self.history) < leader.start:
                    self.begin_anew(leader.start)
                else:
                    self._append(leader)
                    return
        raise AssertionError("it never comes to an end")

    def _agrees(self, leader: "Part") -> bool:
        asked = question(self.epochs, Offset(len(self.history)), LeaderEpoch(100))
        if asked is None:
            return True
        answer = leader.epochs.end_of(asked, Offset(len(leader.history)))
        decision = reconcile(self.epochs, Offset(self.start), Offset(len(self.history)), answer)
        if isinstance(decision, BeginAnew):
            assert decision.offset == 0 or decision.offset >= len(self.history)
            self.begin_anew(decision.offset)
            return False
        self.cut(decision.end)
        return isinstance(decision, Agreed)

    def _append(self, leader: "Part") -> None:
        for offset in range(len(self.history), len(leader.history)):
            self.epochs.assign(LeaderEpoch(leader.history[offset]), Offset(offset))
            self.history.append(leader.history[offset])


@given(replicas(), st.data())
def test_should_come_to_the_same_log_as_any_leader_whatever_both_have_deleted(
    logs: list[History], data: st.DataObject
) -> None:
    """Also one that was out of sync: from where the two have records on, they are the same then."""
    for follower in logs:
        for leader in logs:
            mine = Part.of(follower, data.draw(st.integers(0, len(follower))))
            theirs = Part.of(leader, data.draw(st.integers(0, len(leader))))
            shared = common(follower, leader)

            mine.take(theirs)

            start = max(mine.start, theirs.start)
            assert mine.history[start:] == theirs.history[start:]
            assert mine.start <= theirs.start or mine.start <= shared, "what it lacks was deleted, and not discarded"


def test_should_drop_what_the_leader_never_saw_when_two_elections_came_quickly() -> None:
    """KIP-279: B had 1 record of epoch 1 and led alone in epoch 2, A had 3 and led alone in epoch 3; B follows A now.

    The start of the leader's next epoch, which KIP-101 answered with, would leave two records of epoch 2 here.
    """
    a = [1, 1, 1, 3]
    b = [1, 2, 2, 2]
    epochs = epochs_of(b)

    first = reconcile(epochs, Offset(0), Offset(4), answer_of(a, LeaderEpoch(2)))

    assert first == Agreed(Offset(1), "epoch 1 ends at 1 here, at 3 for the leader")


def test_should_not_keep_what_one_round_alone_would_keep() -> None:
    """KIP-279: the answer names an epoch that the follower never saw."""
    leader = [1, 1, 2, 2, 2]
    follower = [1, 1, 1, 3, 3]
    epochs = epochs_of(follower)

    first = reconcile(epochs, Offset(0), Offset(5), answer_of(leader, LeaderEpoch(3)))

    assert first == AskAgain(Offset(3), LeaderEpoch(1), "the leader has no epoch from 3 to 3")
    assert reconciled(follower, leader) == (2, 2)


@pytest.mark.parametrize(
    ("answer", "end"), [((2, 200), 90), ((2, 85), 85), ((2, 80), 80), ((2, 79), 0), ((1, 50), 0), ((1, 30), 0)]
)
def test_should_drop_its_start_too_where_the_logs_part_below_it(answer: tuple[int, int], end: int) -> None:
    """Epoch 2 began at 50, and what lay below 80 is deleted: that was committed, so the leader was out of sync."""
    epochs = LeaderEpochs([EpochStart(LeaderEpoch(2), Offset(50))])
    said = EpochEnd(LeaderEpoch(answer[0]), Offset(answer[1]))
    decision = reconcile(epochs, Offset(80), Offset(90), said)
    assert isinstance(decision, BeginAnew if end == 0 else Agreed)
    assert (decision.offset if isinstance(decision, BeginAnew) else decision.end) == end


def test_should_ask_again_where_the_logs_part_at_its_start() -> None:
    """It knows no epoch then, and has to see whether the leader's log reaches that far."""
    epochs = LeaderEpochs([EpochStart(LeaderEpoch(5), Offset(20))])
    decision = reconcile(epochs, Offset(20), Offset(30), EpochEnd(LeaderEpoch(3), Offset(25)))
    assert isinstance(decision, AskAgain)
    assert (decision.end, decision.epoch) == (20, NO_EPOCH)


@pytest.mark.parametrize(("leader_end", "begins"), [(19, 0), (20, None), (35, None)])
def test_should_begin_anew_when_an_empty_log_starts_beyond_the_leaders(leader_end: int, begins: int | None) -> None:
    decision = reconcile(LeaderEpochs(), Offset(20), Offset(20), EpochEnd(LeaderEpoch(9), Offset(leader_end)))
    if begins is None:
        assert isinstance(decision, Agreed)
        assert decision.end == 20
    else:
        assert isinstance(decision, BeginAnew)
        assert decision.offset == begins


@pytest.mark.parametrize(("starts", "log_end", "asked"), [([(2, 5)], 9, 2), ([], 9, 7), ([], 0, None)])
def test_should_ask_for_its_last_epoch_or_else_for_the_end_of_the_leaders_log(
    starts: list[tuple[int, int]], log_end: int, asked: int | None
) -> None:
    epochs = LeaderEpochs([EpochStart(LeaderEpoch(epoch), Offset(offset)) for epoch, offset in starts])
    assert question(epochs, Offset(log_end), LeaderEpoch(7)) == asked


def test_should_keep_nothing_when_the_leader_cannot_vouch_for_any_of_it() -> None:
    """Its records of that time are deleted: what lies below its start here may be what was never committed."""
    epochs = LeaderEpochs([EpochStart(LeaderEpoch(2), Offset(10))])
    answer = LeaderEpochs([EpochStart(LeaderEpoch(5), Offset(40))]).end_of(LeaderEpoch(2), Offset(99))
    assert answer == EpochEnd(NO_EPOCH, Offset(40))
    reason = "the leader has nothing of epoch 2 or before"
    decision = reconcile(epochs, Offset(10), Offset(60), answer)
    assert decision == AskAgain(Offset(40), LeaderEpoch(2), f"{reason}, and its first begins at 40")
    assert reconcile(epochs, Offset(10), Offset(40), answer) == BeginAnew(Offset(40), reason)
    assert reconcile(epochs, Offset(40), Offset(60), answer) == Agreed(Offset(40), reason)
    below = f"{reason}, and its first begins at 40, below 41, where this log starts"
    assert reconcile(epochs, Offset(41), Offset(60), answer) == BeginAnew(Offset(0), below)


def test_should_not_end_below_where_the_leaders_first_epoch_began() -> None:
    """All that it has is committed, and deleted by the leader: its offsets must not be given away again."""
    epochs = LeaderEpochs([EpochStart(LeaderEpoch(1), Offset(0))])
    leader = LeaderEpochs([EpochStart(LeaderEpoch(5), Offset(7))]).end_of(LeaderEpoch(1), Offset(9))
    decision = reconcile(epochs, Offset(3), Offset(5), leader)
    assert decision == BeginAnew(Offset(7), "the leader has nothing of epoch 1 or before")


def test_should_refuse_an_answer_above_the_question() -> None:
    with pytest.raises(DivergedLogError, match="epoch 3, above 2"):
        reconcile(epochs_of([1, 2]), Offset(0), Offset(2), EpochEnd(LeaderEpoch(3), Offset(9)))
