"""A follower finds by epochs where its log and the leader's part, whatever has happened before."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import DivergedLogError
from headrace.core.log.epochs import NO_EPOCH, EpochEnd, EpochStart, LeaderEpochs
from headrace.core.replication.following import Agreed, AskAgain, BeginAnew, question, reconcile
from headrace.core.types import LeaderEpoch, Offset

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
