"""A leader with followers: what is committed, by whose votes, and when nothing may be."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import NotEnoughReplicasError, NotReadyError
from headrace.core.limits import LEASE_DURATION_MS
from headrace.core.log.epochs import Fence
from headrace.core.replication.events import (
    Acknowledge,
    Appended,
    Configured,
    Effect,
    FollowerLeft,
    FollowerReported,
    IsrProposed,
    RaiseHighWatermark,
    StateApplied,
    Synced,
    Waiter,
)
from headrace.core.replication.isr import FOLLOWER_AWAY_MS, Ends, InSyncRules, Isr, floor
from headrace.core.replication.leadership import Contact, Leadership
from headrace.core.resources.partition_set import PartitionState
from headrace.core.resources.topic import Durability
from headrace.core.types import Acks, BrokerId, LeaderEpoch, Offset, PartitionEpoch, Seat
from tests.support.partition_sets import partition_state, seat

ME, SECOND, THIRD = seat(0), seat(1), seat(2)
BROKERS = tuple(BrokerId(each) for each in range(3))
STATE = partition_state(leader=ME, replicas=BROKERS, isr=(ME, SECOND, THIRD))
RULES = InSyncRules(Durability.REPLICATED, min_insync_replicas=2)
EPOCH = LeaderEpoch(1)
NOW_MS = 0


def leader(state: PartitionState = STATE, rules: InSyncRules = RULES) -> Leadership:
    leadership = Leadership(ME, rules, log_end=Offset(0), durable_end=Offset(0))
    leadership.step(StateApplied(state), NOW_MS)
    return leadership


def changed(state: PartitionState, **changes: Any) -> PartitionState:
    return replace(state, partition_epoch=PartitionEpoch(state.partition_epoch + 1), **changes)


def append(leadership: Leadership, log_end: int, number: int = 1) -> list[Effect]:
    return leadership.step(Appended(Offset(log_end), 100, Waiter(number, Acks.ALL, expires_ms=1_000)), NOW_MS)


def report(
    leadership: Leadership, who: Seat, log_end: int, durable_end: int = 0, epoch: LeaderEpoch = EPOCH
) -> list[Effect]:
    return leadership.step(FollowerReported(who, epoch, Ends(Offset(log_end), Offset(durable_end))), NOW_MS)


def test_should_commit_what_every_member_has() -> None:
    leadership = leader()
    assert append(leadership, 5, 7) == []
    assert report(leadership, SECOND, 5) == []
    assert report(leadership, THIRD, 3)[0] == RaiseHighWatermark(Offset(3), f"{THIRD} has {Ends(Offset(3), Offset(0))}")
    assert report(leadership, THIRD, 5)[0] == Acknowledge((7,), f"{THIRD} has {Ends(Offset(5), Offset(0))}")
    assert leadership.high_watermark == 5


def test_should_count_what_is_on_disk_under_fsync() -> None:
    leadership = leader(rules=replace(RULES, durability=Durability.FSYNC))
    append(leadership, 5)
    leadership.step(Synced(Offset(5)), NOW_MS)
    for follower in (SECOND, THIRD):
        report(leadership, follower, 5, durable_end=2)
    assert leadership.high_watermark == 2


def test_should_take_no_vote_of_another_epoch_or_life() -> None:
    leadership = leader()
    append(leadership, 5)
    report(leadership, SECOND, 5)
    assert report(leadership, THIRD, 5, epoch=LeaderEpoch(0)) == []
    assert report(leadership, seat(2, 9), 5) == []
    assert leadership.high_watermark == 0
    leadership.step(StateApplied(changed(STATE, leader_epoch=LeaderEpoch(2))), NOW_MS)
    report(leadership, THIRD, 5, epoch=LeaderEpoch(2))
    assert leadership.high_watermark == 0, "the second has not voted in this epoch"


def test_should_wait_for_whom_it_proposes_to_take_in() -> None:
    state = replace(STATE, isr=(ME, SECOND))
    leadership = leader(state)
    append(leadership, 5)
    report(leadership, SECOND, 5)
    assert leadership.high_watermark == 5
    proposed = Isr(state).proposing(changed(state, isr=STATE.isr))
    leadership.step(IsrProposed(proposed.pending), NOW_MS)
    append(leadership, 9, 2)
    report(leadership, SECOND, 9)
    assert leadership.high_watermark == 5, "the third may be in sync, and has nothing"
    leadership.step(IsrProposed(None), NOW_MS)
    assert leadership.high_watermark == 9


def test_should_go_on_without_a_removed_member_once_that_has_landed() -> None:
    leadership = leader()
    append(leadership, 5)
    report(leadership, SECOND, 5)
    without = changed(STATE, isr=(ME, SECOND))
    leadership.step(IsrProposed(Isr(STATE).proposing(without).pending), NOW_MS)
    assert leadership.high_watermark == 0, "it may be elected yet"
    leadership.step(StateApplied(without), NOW_MS)
    leadership.step(IsrProposed(None), NOW_MS)
    assert leadership.high_watermark == 5


def test_should_commit_nothing_and_refuse_acks_all_below_the_floor() -> None:
    leadership = leader(replace(STATE, isr=(ME,)))
    append(leadership, 5)
    assert leadership.high_watermark == 0
    with pytest.raises(NotEnoughReplicasError, match="fewer replicas in sync than acks=all needs"):
        leadership.check_writable("flights/0", Fence(), Acks.ALL)
    assert leadership.check_writable("flights/0", Fence(), Acks.LEADER) == EPOCH
    leadership.step(Configured(replace(RULES, min_insync_replicas=1)), NOW_MS)
    assert leadership.high_watermark == 5


def test_should_count_a_removal_against_the_floor_before_it_has_landed() -> None:
    state = replace(STATE, isr=(ME, SECOND))
    leadership = leader(state)
    leadership.step(IsrProposed(Isr(state).proposing(changed(state, isr=(ME,))).pending), NOW_MS)
    append(leadership, 5)
    report(leadership, SECOND, 5)
    assert leadership.high_watermark == 0


@pytest.mark.parametrize(
    ("replicas", "adding", "expected"), [(3, (), 2), (1, (), 1), (3, (1, 2), 1), (3, (2,), 2), (1, (0,), 1)]
)
def test_should_ask_for_no_more_than_have_been_there_for_long_enough(
    replicas: int, adding: tuple[int, ...], expected: int
) -> None:
    state = replace(STATE, replicas=BROKERS[:replicas], adding=tuple(BrokerId(each) for each in adding))
    assert floor(state, 2) == expected


def test_should_want_whoever_is_caught_up_in_the_isr() -> None:
    leadership = leader(replace(STATE, isr=(ME,)), replace(RULES, min_insync_replicas=1))
    append(leadership, 5)
    report(leadership, SECOND, 5)
    report(leadership, THIRD, 4)
    assert leadership.wanted_isr((ME, SECOND, THIRD), NOW_MS) == (ME, SECOND)


def test_should_take_nobody_in_whose_stream_has_ended_until_it_reports_again() -> None:
    leadership = leader(replace(STATE, isr=(ME,)))
    report(leadership, SECOND, 0)
    assert leadership.wanted_isr((ME, SECOND), NOW_MS) == (ME, SECOND)
    assert leadership.step(FollowerLeft(THIRD, EPOCH), NOW_MS) == [], "it never said anything"
    assert leadership.step(FollowerLeft(SECOND, EPOCH), NOW_MS) == []
    assert leadership.wanted_isr((ME, SECOND), NOW_MS) == (ME,), "it may be dead, whatever its Lease says"
    report(leadership, SECOND, 0)
    assert leadership.wanted_isr((ME, SECOND), NOW_MS) == (ME, SECOND)


def test_should_ignore_a_proposal_before_there_is_a_state() -> None:
    leadership = Leadership(ME, RULES, log_end=Offset(0), durable_end=Offset(0))
    assert leadership.step(IsrProposed(None), NOW_MS) == []
    assert leadership.isr is None


@given(st.lists(st.tuples(st.sampled_from([ME, SECOND, THIRD]), st.integers(1, 5)), max_size=30))
def test_should_never_commit_what_some_member_lacks(moves: list[tuple[Seat, int]]) -> None:
    leadership = leader()
    ends = dict.fromkeys((ME, SECOND, THIRD), 0)
    for who, more in moves:
        if who == ME:
            ends[ME] += more
            append(leadership, ends[ME])
        else:
            ends[who] = min(ends[who] + more, ends[ME])
            report(leadership, who, ends[who])
        assert leadership.high_watermark == min(ends.values())


LEASE_LOST = Contact(now_ms=60_000, lease_renewed_ms=60_000 - LEASE_DURATION_MS)


def heard(leadership: Leadership, who: Seat, at_ms: int, now_ms: int = 60_000) -> None:
    leadership.step(FollowerReported(who, EPOCH, Ends(Offset(0), Offset(0)), at_ms), now_ms)


def test_should_not_call_latest_what_its_predecessor_may_have_passed() -> None:
    leadership = Leadership(ME, RULES, log_end=Offset(9), durable_end=Offset(9))
    leadership.high_watermark = Offset(4)
    leadership.step(StateApplied(STATE), NOW_MS)
    with pytest.raises(NotReadyError, match="knows as committed what lies below 4; there may be more, up to 9"):
        leadership.check_latest("t/0", Contact(0, 0))
    for follower in (SECOND, THIRD):
        report(leadership, follower, 9)
    leadership.check_latest("t/0", Contact(0, 0))


def test_should_ask_everybody_in_sync_when_its_lease_is_over() -> None:
    leadership = leader()
    heard(leadership, SECOND, 60_000)
    for check in (
        lambda contact: leadership.check_latest("t/0", contact),
        lambda contact: leadership.check_writable("t/0", Fence(), Acks.LEADER, contact),
        lambda contact: leadership.check_writable("t/0", Fence(), Acks.NONE, contact),
    ):
        with pytest.raises(NotReadyError, match=r"cannot tell whether it still leads t/0.*not heard 2@1, in sync"):
            check(LEASE_LOST)
        check(LEASE_LOST._replace(lease_renewed_ms=LEASE_LOST.lease_renewed_ms + 1))
    assert leadership.check_writable("t/0", Fence(), Acks.ALL, LEASE_LOST) == EPOCH, "what commits is safe by epochs"
    heard(leadership, THIRD, 60_000)
    assert leadership.check_writable("t/0", Fence(), Acks.LEADER, LEASE_LOST) == EPOCH


def test_should_count_as_heard_when_it_said_what_is_answered() -> None:
    leadership = leader()
    heard(leadership, SECOND, 60_000)
    heard(leadership, THIRD, 60_000 - LEASE_DURATION_MS)  # It lay in a socket while this process was stopped.
    with pytest.raises(NotReadyError, match="has not heard 2@1"):
        leadership.check_latest("t/0", LEASE_LOST)
    heard(leadership, THIRD, 60_001 - LEASE_DURATION_MS)
    leadership.check_latest("t/0", LEASE_LOST)


def test_should_need_nobody_when_nobody_else_is_in_sync() -> None:
    leadership = leader(replace(STATE, isr=(ME,)), replace(RULES, min_insync_replicas=1))
    leadership.check_latest("t/0", LEASE_LOST)
    for acks in Acks:
        assert leadership.check_writable("t/0", Fence(), acks, LEASE_LOST) == EPOCH


def test_should_refuse_at_once_when_too_few_in_sync_are_there() -> None:
    leadership = leader()
    for follower in (SECOND, THIRD):
        report(leadership, follower, 0)
    reported = Contact(NOW_MS, NOW_MS)
    leadership.step(FollowerLeft(THIRD, EPOCH), NOW_MS)
    later = Contact(NOW_MS + FOLLOWER_AWAY_MS, NOW_MS)
    assert leadership.check_writable("t/0", Fence(), Acks.ALL, later) == EPOCH, "two of three are enough"
    leadership.step(FollowerLeft(SECOND, EPOCH), NOW_MS)
    assert leadership.check_writable("t/0", Fence(), Acks.ALL, reported) == EPOCH, "it may be back in a moment"
    with pytest.raises(NotEnoughReplicasError, match="fewer replicas in sync"):
        leadership.check_writable("t/0", Fence(), Acks.ALL, later)
    report(leadership, SECOND, 0)
    assert leadership.check_writable("t/0", Fence(), Acks.ALL, later) == EPOCH
    silent = Contact(NOW_MS + RULES.replica_lag_ms_max + 1, NOW_MS)
    with pytest.raises(NotEnoughReplicasError, match="fewer replicas in sync"):
        leadership.check_writable("t/0", Fence(), Acks.ALL, silent)


def test_should_refuse_when_nobody_has_come_for_long_since_it_was_elected() -> None:
    leadership = leader()
    late = Contact(NOW_MS + RULES.replica_lag_ms_max + 1, NOW_MS)
    with pytest.raises(NotEnoughReplicasError, match="fewer replicas in sync"):
        leadership.check_writable("t/0", Fence(), Acks.ALL, late)
