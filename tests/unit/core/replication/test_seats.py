"""A life of a broker claims what only it can hold, and nothing under an old name.

Epochs that rise are remembered; epochs below those are known for data that went back.

An epoch has one history: a state that goes back is believed by nobody.
"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.log.epochs import NO_EPOCH
from headrace.core.replication.seats import (
    Claim,
    LogFacts,
    Regressed,
    SeenEpochs,
    claim,
    give_up,
    greatest_incarnation,
    is_superseded,
    may_act_on,
    regressed_topics,
    supersedes,
    surrender,
    to_remember,
    why_void,
)
from headrace.core.resources.partition_set import PartitionState
from headrace.core.types import (
    BrokerId,
    Incarnation,
    LeaderEpoch,
    PartitionEpoch,
    PartitionId,
    PartitionKey,
    Seat,
    TopicUid,
)
from tests.support.partition_sets import partition_set, partition_state, seat

INTACT = LogFacts(LeaderEpoch(1))
DAMAGED = LogFacts(LeaderEpoch(1), damage="the directory is missing")


def test_should_take_an_incarnation_above_all_that_is_known_when_any_source_is_ahead() -> None:
    me = BrokerId(0)
    leading = partition_set(partition_state(leader=seat(0, 9)))
    in_sync = partition_set(partition_state(leader=seat(1, 20), isr=(seat(1, 20), seat(0, 11))))

    assert greatest_incarnation(me, Incarnation(0), []) == 0
    assert greatest_incarnation(me, Incarnation(5), []) == 5
    assert greatest_incarnation(me, Incarnation(5), [leading]) == 9
    assert greatest_incarnation(me, Incarnation(5), [leading, in_sync]) == 11
    assert greatest_incarnation(me, Incarnation(12), [leading, in_sync]) == 12


def test_should_elect_itself_under_higher_epochs_when_it_returns_as_the_only_replica() -> None:
    before = partition_state(leader=seat(0, 1))

    claimed = claim(before, seat(0, 2), INTACT)

    after = replace(
        before,
        leader=seat(0, 2),
        isr=(seat(0, 2),),
        leader_epoch=LeaderEpoch(2),
        partition_epoch=PartitionEpoch(2),
    )
    assert claimed == Claim(after, "the seat of 0@1 is void, and 0@2 is the only replica")


def test_should_elect_itself_when_the_partition_has_no_leader() -> None:
    claimed = claim(partition_state(leader=None), seat(0, 2), INTACT)
    assert isinstance(claimed, Claim)
    assert claimed.reason == "nobody leads, and 0@2 is the only replica"


def test_should_say_what_may_be_lost_when_its_log_is_not_intact() -> None:
    claimed = claim(partition_state(leader=seat(0, 1)), seat(0, 2), DAMAGED)
    assert isinstance(claimed, Claim)
    assert claimed.loss == "acknowledged records may be missing: the directory is missing"


def test_should_not_speak_of_loss_when_nobody_has_ever_led() -> None:
    fresh = partition_state(leader=None, leader_epoch=LeaderEpoch(0))
    claimed = claim(fresh, seat(0, 2), LogFacts(LeaderEpoch(0), "the directory is missing"))
    assert isinstance(claimed, Claim)
    assert claimed.loss == ""


def test_should_claim_nothing_when_it_leads_already() -> None:
    assert claim(partition_state(leader=seat(0, 2)), seat(0, 2), INTACT) is None


def test_should_claim_nothing_when_it_is_no_replica() -> None:
    assert claim(partition_state(leader=seat(1)), seat(0, 2), INTACT) is None
    assert claim(partition_state(leader=seat(1, 1)), seat(0, 2), INTACT) is None


def test_should_refuse_an_election_when_the_epochs_of_the_api_went_back() -> None:
    refused = claim(partition_state(leader=seat(0, 1)), seat(0, 2), LogFacts(LeaderEpoch(5)))
    assert isinstance(refused, Regressed)
    assert "leader epoch 1" in refused.reason
    assert "epoch 5" in refused.reason


def test_should_say_so_too_when_it_was_named_leader_in_an_epoch_that_is_over() -> None:
    # As when the sets were lost and the topic was placed anew: its log takes no append in that epoch.
    assert isinstance(claim(partition_state(leader=seat(0, 2)), seat(0, 2), LogFacts(LeaderEpoch(5))), Regressed)


def test_should_leave_no_trace_when_it_surrenders() -> None:
    surrendered = surrender(partition_state(leader=seat(0, 4)), BrokerId(0))
    assert surrendered == partition_state(leader=None, replicas=(), isr=(), partition_epoch=PartitionEpoch(2))


def test_should_keep_the_seats_of_others_when_it_surrenders() -> None:
    shared = partition_state(leader=seat(1), replicas=(BrokerId(0), BrokerId(1)), isr=(seat(1), seat(0)))
    surrendered = surrender(shared, BrokerId(0))
    assert surrendered == replace(shared, replicas=(BrokerId(1),), isr=(seat(1),), partition_epoch=PartitionEpoch(2))
    assert surrender(partition_state(leader=seat(1)), BrokerId(0)) is None


def test_should_leave_its_isr_entry_when_it_gives_up_as_the_last_one() -> None:
    alone = partition_state(leader=seat(0, 4))
    shared = partition_state(leader=seat(0), replicas=(BrokerId(0), BrokerId(1)), isr=(seat(1), seat(0)))
    after = PartitionEpoch(2)

    assert give_up(alone, seat(0, 4)) == replace(alone, leader=None, partition_epoch=after)
    assert give_up(shared, seat(0)) == replace(shared, leader=None, isr=(seat(1),), partition_epoch=after)
    assert give_up(replace(shared, leader=seat(1)), seat(0)) == replace(
        shared, leader=seat(1), isr=(seat(1),), partition_epoch=after
    )
    assert give_up(alone, seat(0, 5)) is None
    assert give_up(replace(alone, leader=None), seat(0, 4)) is None


def test_should_know_that_it_is_superseded_when_a_seat_is_of_a_later_life() -> None:
    seats = partition_set(partition_state(leader=seat(0, 4)), partition_state(1, leader=seat(1, 9)))
    assert is_superseded(seat(0, 3), [seats])
    assert not is_superseded(seat(0, 4), [seats])


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=20))
def test_should_only_ever_rise_when_states_arrive_in_any_order(epochs: list[tuple[int, int]]) -> None:
    applied, seen = None, []
    for partition_epoch, leader_epoch in epochs:
        state = partition_state(partition_epoch=PartitionEpoch(partition_epoch), leader_epoch=LeaderEpoch(leader_epoch))
        if supersedes(state, applied):
            applied = state
            seen.append(state.partition_epoch)
    assert seen == sorted(set(seen))


@given(st.integers(1, 5), st.integers(0, 5), st.integers(0, 5), st.integers(0, 5))
def test_should_raise_both_epochs_and_name_only_itself_when_it_claims(
    incarnation: int, leader_epoch: int, partition_epoch: int, last_epoch: int
) -> None:
    before = partition_state(
        leader=seat(0, 3), leader_epoch=LeaderEpoch(leader_epoch), partition_epoch=PartitionEpoch(partition_epoch)
    )
    claimed = claim(before, seat(0, incarnation), LogFacts(LeaderEpoch(last_epoch)))
    if isinstance(claimed, Claim):
        after = claimed.state
        assert after.leader == seat(0, incarnation)
        assert after.isr == (seat(0, incarnation),)
        assert after.leader_epoch == before.leader_epoch + 1 > last_epoch
        assert after.partition_epoch == before.partition_epoch + 1


def replicated(*isr: Seat) -> PartitionState:
    return partition_state(leader=seat(1), replicas=(BrokerId(0), BrokerId(1)), isr=isr)


def test_should_renew_the_seat_of_an_intact_log_and_leave_the_election_to_the_operator() -> None:
    claimed = claim(replicated(seat(0, 1), seat(1)), seat(0, 2), INTACT)
    after = replace(replicated(seat(0, 2), seat(1)), partition_epoch=PartitionEpoch(2))
    assert claimed == Claim(after, "0@1 is renewed: its log is intact")


def test_should_give_up_the_seat_of_a_log_that_is_not_intact() -> None:
    claimed = claim(replicated(seat(0, 1), seat(1)), seat(0, 2), DAMAGED)
    after = replace(replicated(seat(1)), partition_epoch=PartitionEpoch(2))
    assert claimed == Claim(after, "0@1 is given up: the directory is missing")


@pytest.mark.parametrize(
    ("isr", "log"),
    [
        ((seat(0, 1),), DAMAGED),
        ((seat(0, 2), seat(1)), INTACT),
        ((seat(1),), INTACT),
    ],
    ids=["the last seat", "of this life", "of others"],
)
def test_should_leave_a_seat_that_is(isr: tuple[Seat, ...], log: LogFacts) -> None:
    assert claim(replicated(*isr), seat(0, 2), log) is None


def test_should_claim_nothing_of_several_replicas_in_an_epoch_below_its_log() -> None:
    assert isinstance(claim(replicated(seat(0, 1), seat(1)), seat(0, 2), LogFacts(LeaderEpoch(9))), Regressed)


@pytest.mark.parametrize(
    ("isr", "log", "void"),
    [
        ((seat(0, 4), seat(1)), LogFacts(LeaderEpoch(1), void_before=Incarnation(4)), ""),
        ((seat(0, 3), seat(1)), LogFacts(LeaderEpoch(1), void_before=Incarnation(4)), "seats before incarnation 4"),
        ((seat(1),), LogFacts(LeaderEpoch(1), void_before=Incarnation(4)), "seats before incarnation 4"),
        ((seat(1),), INTACT, ""),
        ((seat(0, 4), seat(1)), replace(DAMAGED, void_before=Incarnation(4)), "the directory is missing"),
        ((seat(0, 5), seat(1)), replace(DAMAGED, void_before=Incarnation(5)), ""),
    ],
    ids=["earned since", "void", "no seat", "never void", "damaged since", "of this life"],
)
def test_should_judge_the_seat_that_a_state_names(isr: tuple[Seat, ...], log: LogFacts, void: str) -> None:
    found = why_void(replicated(*isr), seat(0, 5), log)
    assert (void in found) if void else not found


def test_should_renew_a_seat_that_turns_up_after_the_log_was_opened_when_it_was_earned() -> None:
    log = LogFacts(LeaderEpoch(1), void_before=Incarnation(4))
    assert claim(replicated(seat(1)), seat(0, 5), log) is None

    renewed = claim(replicated(seat(0, 4), seat(1)), seat(0, 5), log)
    given_up = claim(replicated(seat(0, 3), seat(1)), seat(0, 5), log)

    assert isinstance(renewed, Claim)
    assert renewed.state.isr == (seat(0, 5), seat(1))
    assert isinstance(given_up, Claim)
    assert given_up.state.isr == (seat(1),)


def test_should_speak_of_loss_when_the_only_seat_is_void() -> None:
    alone = partition_state(leader=seat(0, 3))
    claimed = claim(alone, seat(0, 5), LogFacts(LeaderEpoch(1), void_before=Incarnation(4)))
    assert isinstance(claimed, Claim)
    assert "seats before incarnation 4 are void" in claimed.loss


ME = BrokerId(0)
HERE = partition_state(0, leader=seat(0), leader_epoch=LeaderEpoch(4))
ELSEWHERE = partition_state(1, leader=seat(1), leader_epoch=LeaderEpoch(4))
SET = partition_set(HERE, ELSEWHERE)
KEY = PartitionKey(TopicUid("uid-1"), PartitionId(0))
ANOTHER = PartitionKey(TopicUid("uid-1"), PartitionId(1))


def test_should_remember_what_rises_of_its_own_partitions() -> None:
    assert to_remember([SET], ME, {}) == {KEY: 4}
    assert to_remember([SET], ME, {KEY: LeaderEpoch(3)}) == {KEY: 4}
    assert to_remember([SET], ME, {KEY: LeaderEpoch(4)}) == {}
    assert to_remember([partition_set(HERE, deleting=True)], ME, {}) == {}


def test_should_act_on_what_it_remembers_only() -> None:
    assert [may_act_on(HERE, ME, LeaderEpoch(seen)) for seen in (3, 4, 5)] == [False, True, True]
    assert may_act_on(ELSEWHERE, ME, NO_EPOCH)


def test_should_name_topics_whose_epochs_are_below_those_that_it_has_seen() -> None:
    assert regressed_topics([SET], {KEY: LeaderEpoch(5)}) == {"uid-1"}
    assert regressed_topics([SET], {KEY: LeaderEpoch(4), ANOTHER: LeaderEpoch(9)}) == {"uid-1"}
    assert regressed_topics([SET], {KEY: LeaderEpoch(4), ANOTHER: LeaderEpoch(4)}) == frozenset()
    assert regressed_topics([SET], {}) == frozenset()


def seen(*states: tuple[Seat | None, int]) -> SeenEpochs:
    epochs = SeenEpochs(LeaderEpoch(2))
    for leader, epoch in states:
        epochs.note(partition_state(leader=leader, leader_epoch=LeaderEpoch(epoch)))
    return epochs


@pytest.mark.parametrize(
    ("before", "leader", "epoch", "told"),
    [
        ([], seat(1), 2, ""),
        ([], seat(1), 1, "leader epoch is 1, below 2 that this replica has seen"),
        ([(seat(1), 3)], seat(1), 3, ""),
        ([(seat(1), 3)], seat(2), 3, "2@1 leads in epoch 3, in which 1@1 led"),
        ([(seat(1), 3)], seat(1, 2), 3, "1@2 leads in epoch 3, in which 1@1 led"),
        ([(seat(1), 3)], None, 3, ""),
        ([(seat(1), 3), (None, 3)], seat(2), 3, "2@1 leads in epoch 3, in which 1@1 led"),
        ([(seat(1), 3), (None, 4)], seat(2), 4, ""),
        ([(seat(1), 3), (seat(2), 4)], seat(1), 3, "leader epoch is 3, below 4"),
    ],
)
def test_should_say_what_went_back(
    before: list[tuple[Seat | None, int]], leader: Seat | None, epoch: int, told: str
) -> None:
    said = seen(*before).regression(partition_state(leader=leader, leader_epoch=LeaderEpoch(epoch)))
    assert told in said
    assert bool(said) == bool(told)
