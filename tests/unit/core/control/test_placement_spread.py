from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.control.placement import Candidate, Load, Replicas, spread
from headrace.core.types import BrokerId

NO_LOAD = Load()


def candidates(*zones: str) -> list[Candidate]:
    return [Candidate(BrokerId(number), zone) for number, zone in enumerate(zones)]


def spread_of(counts: Counter[BrokerId], among: list[Candidate]) -> int:
    per_broker = [counts[candidate.broker] for candidate in among]
    return max(per_broker) - min(per_broker)


@st.composite
def equal_zones(draw: st.DrawFn) -> list[Candidate]:
    zones = draw(st.integers(1, 5))
    names = [f"zone-{number % zones}" for number in range(zones * draw(st.integers(1, 3)))]
    return candidates(*draw(st.permutations(names)))


@st.composite
def any_zones(draw: st.DrawFn) -> list[Candidate]:
    return candidates(*draw(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=12)))


loads = st.lists(st.tuples(st.integers(0, 14).map(BrokerId)), max_size=30).map(Load.of)


def test_should_give_each_broker_two_leaders_when_six_partitions_meet_three_brokers() -> None:
    placed = spread(6, 1, candidates("", "", ""), own=[], others=NO_LOAD)
    assert placed == [(0,), (1,), (2,), (0,), (1,), (2,)]


def test_should_prefer_the_broker_that_others_load_least_when_the_topic_has_none_anywhere() -> None:
    others = Load.of([(BrokerId(0),), (BrokerId(0),), (BrokerId(1),)])
    assert spread(1, 1, candidates("", "", ""), own=[], others=others) == [(2,)]


def test_should_balance_the_topic_before_the_cluster_when_a_broker_is_new() -> None:
    others = Load.of([(BrokerId(0),), (BrokerId(1),)] * 50)
    placed = spread(6, 1, candidates("", "", ""), own=[], others=others)
    assert Counter(placed) == {(0,): 2, (1,): 2, (2,): 2}


def test_should_use_every_zone_when_one_zone_has_most_brokers() -> None:
    placed = spread(4, 2, candidates("a", "a", "a", "b"), own=[], others=NO_LOAD)
    assert all(BrokerId(3) in replicas for replicas in placed)


def test_should_refuse_when_there_are_fewer_brokers_than_replicas() -> None:
    with pytest.raises(AssertionError):
        spread(1, 2, candidates(""), own=[], others=NO_LOAD)


@given(equal_zones(), st.integers(1, 7), st.integers(0, 80), loads)
def test_should_balance_leaders_and_replicas_when_zones_are_equal(
    among: list[Candidate], replication: int, count: int, others: Load
) -> None:
    replication = min(replication, len(among))
    placed = spread(count, replication, among, own=[], others=others)
    load = Load.of(placed)
    assert spread_of(load.leaders, among) <= 1
    assert spread_of(load.replicas, among) <= 1


@given(any_zones(), st.integers(1, 7), st.integers(0, 60), loads)
def test_should_take_distinct_brokers_in_as_many_zones_as_there_are(
    among: list[Candidate], replication: int, count: int, others: Load
) -> None:
    replication = min(replication, len(among))
    zones = {candidate.broker: candidate.zone for candidate in among}
    placed = spread(count, replication, among, own=[], others=others)
    for replicas in placed:
        assert len(set(replicas)) == replication
        assert len({zones[broker] for broker in replicas}) == min(replication, len(set(zones.values())))
    assert spread_of(Load.of(placed).leaders, among) <= 1


@given(any_zones(), st.integers(1, 3), st.integers(0, 30), st.integers(0, 30), loads)
def test_should_place_the_same_in_two_parts_as_at_once(
    among: list[Candidate], replication: int, first: int, second: int, others: Load
) -> None:
    replication = min(replication, len(among))
    begun = spread(first, replication, among, own=[], others=others)
    ended = spread(second, replication, among, own=begun, others=others)
    assert begun + ended == spread(first + second, replication, among, own=[], others=others)


@given(any_zones(), st.lists(st.tuples(st.integers(0, 3).map(BrokerId)), max_size=12), st.integers(1, 30))
def test_should_level_out_what_is_there_when_it_grows(among: list[Candidate], own: list[Replicas], count: int) -> None:
    """Each new partition goes where the topic has least: the gap never widens."""
    gaps = []
    for grown in range(count + 1):
        placed = spread(grown, 1, among, own=own, others=NO_LOAD)
        gaps.append(spread_of(Load.of([*own, *placed]).leaders, among))
    assert all(after <= max(before, 1) for before, after in pairwise(gaps))


def test_should_count_out_a_part_of_a_load() -> None:
    own = [(BrokerId(0), BrokerId(1))]
    load = Load.of([*own, (BrokerId(1), BrokerId(2))]).without(Load.of(own))
    assert load == Load(Counter({BrokerId(1): 1}), Counter({BrokerId(1): 1, BrokerId(2): 1}))
