"""Whom a leader counts, whom it waits for no longer, and whom it takes in."""

from dataclasses import replace

import pytest

from headrace.core.replication.isr import REPLICA_LAG_MS_MAX, Ends, Followers, InSyncRules
from headrace.core.resources.partition_set import PartitionState
from headrace.core.resources.topic import Durability, TopicSpec
from headrace.core.types import BrokerId, Offset, Seat
from tests.support.partition_sets import partition_state, seat

LEADER, SECOND, THIRD = seat(0), seat(1), seat(2)
ALL = (LEADER, SECOND, THIRD)
RULES = InSyncRules(Durability.FSYNC, min_insync_replicas=2, replica_lag_ms_max=1_000)
STATE = partition_state(leader=LEADER, replicas=tuple(BrokerId(each) for each in range(3)), isr=ALL)
EPOCH_START = Offset(100)


def test_the_topic_says_what_the_isr_is_judged_by() -> None:
    spec = TopicSpec.parse({"partitions": 1, "replicas": 3, "durability": "Replicated"})
    assert InSyncRules.of_topic(spec) == InSyncRules(Durability.REPLICATED, 2, REPLICA_LAG_MS_MAX)


def ends(durable_end: int, log_end: int | None = None) -> Ends:
    return Ends(Offset(durable_end if log_end is None else log_end), Offset(durable_end))


def report(followers: Followers, who: Seat, durable_end: int, leader_end: int, now_ms: int) -> None:
    followers.reported(who, ends(durable_end), ends(leader_end), RULES, now_ms)


def isr_of(
    followers: Followers,
    state: PartitionState = STATE,
    *,
    live: tuple[Seat, ...] = ALL,
    high_watermark: int = 100,
    now_ms: int,
) -> tuple[Seat, ...]:
    return followers.wanted_isr(state, Offset(high_watermark), live, RULES, now_ms)


def test_a_vote_is_what_a_follower_vouches_for() -> None:
    followers = Followers(EPOCH_START, 0)
    assert followers.vote(SECOND, Durability.FSYNC) is None
    followers.reported(SECOND, ends(105, log_end=110), ends(110), RULES, 5)
    assert followers.vote(SECOND, Durability.FSYNC) == 105
    assert followers.vote(SECOND, Durability.REPLICATED) == 110
    assert followers.vote(seat(1, 2), Durability.FSYNC) is None, "another life has said nothing"


def test_who_never_reports_is_late_from_the_beginning_of_the_epoch() -> None:
    followers = Followers(EPOCH_START, 500)
    report(followers, SECOND, 100, 100, 600)
    assert isr_of(followers, now_ms=1_500) == ALL
    assert isr_of(followers, now_ms=1_501) == (LEADER, SECOND)


def test_a_follower_that_has_what_the_leader_had_is_caught_up_under_traffic() -> None:
    followers = Followers(EPOCH_START, 0)
    for now_ms in range(0, 5_000, 500):
        report(followers, SECOND, 100 + now_ms, 600 + now_ms, now_ms)
        report(followers, THIRD, 100 + now_ms // 2, 600 + now_ms, now_ms)
    assert isr_of(followers, now_ms=5_000) == (LEADER, SECOND)


@pytest.mark.parametrize(("minimum", "kept"), [(1, (LEADER,)), (2, (LEADER, THIRD)), (3, ALL)])
def test_being_late_never_takes_the_isr_below_the_floor(minimum: int, kept: tuple[Seat, ...]) -> None:
    followers, rules = Followers(EPOCH_START, 0), replace(RULES, min_insync_replicas=minimum)
    report(followers, THIRD, 100, 100, 10)
    assert followers.wanted_isr(STATE, EPOCH_START, ALL, rules, 9_000) == kept


@pytest.mark.parametrize(
    ("durable_end", "live", "joins"),
    [(120, ALL, True), (119, ALL, False), (120, (LEADER, SECOND), False)],
)
def test_a_follower_joins_at_the_high_watermark_while_its_lease_is_live(
    durable_end: int, live: tuple[Seat, ...], joins: bool
) -> None:
    followers = Followers(EPOCH_START, 0)
    report(followers, SECOND, 130, 130, 10)
    report(followers, THIRD, durable_end, 130, 10)
    state = replace(STATE, isr=(LEADER, SECOND))
    assert isr_of(followers, state, live=live, high_watermark=120, now_ms=20) == (ALL if joins else (LEADER, SECOND))


def test_a_follower_joins_only_at_the_start_of_the_epoch() -> None:
    followers = Followers(EPOCH_START, 0)
    state = replace(STATE, isr=(LEADER,))
    report(followers, SECOND, 99, 130, 10)
    assert isr_of(followers, state, high_watermark=50, now_ms=20) == (LEADER,)
    report(followers, SECOND, 100, 130, 10)
    assert isr_of(followers, state, high_watermark=50, now_ms=20) == (LEADER, SECOND)


def test_a_later_life_takes_the_place_of_the_one_before() -> None:
    followers, again = Followers(EPOCH_START, 0), seat(2, 7)
    report(followers, SECOND, 130, 130, 10)
    report(followers, again, 130, 130, 10)
    assert isr_of(followers, live=(LEADER, SECOND, again), now_ms=20) == (LEADER, SECOND, again)


def test_who_is_no_replica_does_not_join() -> None:
    followers = Followers(EPOCH_START, 0)
    report(followers, stranger := seat(9), 130, 130, 10)
    state = replace(STATE, isr=(LEADER,))
    assert isr_of(followers, state, live=(*ALL, stranger), now_ms=20) == (LEADER,)
