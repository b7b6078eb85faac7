"""A follower finds by epochs where its log and the leader's part, whatever has happened before."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import DivergedLogError
from headrace.core.log.epochs import NO_EPOCH, EpochEnd, EpochStart, LeaderEpochs
from headrace.core.replication.truncation import Agreed, AskAgain, BeginAnew, reconcile
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
    ("answer", "end"), [((2, 200), 90), ((2, 85), 85), ((2, 60), 80), ((1, 50), 80), ((1, 30), 80)]
)
def test_should_never_go_below_the_logs_start(answer: tuple[int, int], end: int) -> None:
    """Epoch 2 began at 50, and what lay below 80 is deleted."""
    epochs = LeaderEpochs([EpochStart(LeaderEpoch(2), Offset(50))])
    said = EpochEnd(LeaderEpoch(answer[0]), Offset(answer[1]))
    decision = reconcile(epochs, Offset(80), Offset(90), said)
    assert isinstance(decision, Agreed)
    assert decision.end == end


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


def test_should_not_end_below_where_the_leaders_first_epoch_began() -> None:
    """All that it has is committed, and deleted by the leader: its offsets must not be given away again."""
    epochs = LeaderEpochs([EpochStart(LeaderEpoch(1), Offset(0))])
    leader = LeaderEpochs([EpochStart(LeaderEpoch(5), Offset(7))]).end_of(LeaderEpoch(1), Offset(9))
    decision = reconcile(epochs, Offset(3), Offset(5), leader)
    assert decision == BeginAnew(Offset(7), "the leader has nothing of epoch 1 or before")


def test_should_refuse_an_answer_above_the_question() -> None:
    with pytest.raises(DivergedLogError, match="epoch 3, above 2"):
        reconcile(epochs_of([1, 2]), Offset(0), Offset(2), EpochEnd(LeaderEpoch(3), Offset(9)))
