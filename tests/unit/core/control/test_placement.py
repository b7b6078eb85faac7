"""Replicas that are placed already: who stays, who comes, who goes."""

from collections import Counter
from dataclasses import replace
from itertools import count, pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.core.control.placement import Candidate, Ground, Load, Replicas, level, refit, spread
from headrace.core.types import BrokerId

NO_LOAD = Load()


def brokers(*numbers: int) -> Replicas:
    return tuple(BrokerId(number) for number in numbers)


def candidates(zones: str) -> list[Candidate]:
    return [Candidate(BrokerId(number), zone) for number, zone in enumerate(zones)]


def ground(
    zones: str, *, leaving: tuple[int, ...] = (), faults: dict[int, int] | None = None, at_hand: tuple[int, ...] = ()
) -> Ground:
    """Broker 0 in the first zone of `zones`, and so on."""
    known = candidates(zones)
    staying = [candidate for candidate in known if candidate.broker not in leaving]
    found = Ground.of(staying, {c.broker: c.zone for c in known}, NO_LOAD)
    by_broker = {BrokerId(number): fault for number, fault in (faults or {}).items()}
    return replace(found, leaving={*brokers(*leaving)}).of_partition(by_broker, brokers(*at_hand))


def refitted(current: Replicas, replication: int, on: Ground, load: Load | None = None) -> Replicas:
    return refit(current, replication, on, load or Load.of([current]))


def test_should_leave_a_partition_alone_when_it_fits() -> None:
    assert refitted(brokers(2, 0), 2, ground("aab")) == brokers(2, 0)


def test_should_add_at_the_end_in_another_zone_first_when_there_are_to_be_more() -> None:
    assert refitted(brokers(0), 2, ground("aab")) == brokers(0, 2)
    assert refitted(brokers(0), 3, ground("aab")) == brokers(0, 2, 1)


def test_should_add_whoever_holds_least_when_zones_do_not_matter() -> None:
    load = Load.of([brokers(0), brokers(1)])
    assert refitted(brokers(0), 2, ground("xxx"), load) == brokers(0, 2)


def test_should_add_nobody_when_there_are_not_enough_brokers() -> None:
    assert refitted(brokers(0), 3, ground("ab")) == brokers(0)


def test_should_keep_the_preferred_leader_and_the_zones_when_there_are_to_be_fewer() -> None:
    assert refitted(brokers(0, 1, 2), 2, ground("aab")) == brokers(0, 2)
    assert refitted(brokers(0, 1, 2), 1, ground("aab")) == brokers(0)


def test_should_drop_whoever_is_worth_least_when_there_are_to_be_fewer() -> None:
    assert refitted(brokers(0, 1, 2), 1, ground("abc", faults={0: 2, 1: 1})) == brokers(2)
    assert refitted(brokers(0, 1, 2), 2, ground("abc", leaving=(0,), faults={1: 2})) == brokers(1, 2)


def test_should_put_another_in_the_place_of_who_leaves() -> None:
    assert refitted(brokers(0, 1), 2, ground("abab", leaving=(0,))) == brokers(2, 1)
    assert refitted(brokers(1, 0), 2, ground("abab", leaving=(0,))) == brokers(1, 2)


def test_should_take_back_who_still_holds_it_where_zones_allow() -> None:
    assert refitted(brokers(0), 2, ground("xxxx", at_hand=(3,))) == brokers(0, 3)
    assert refitted(brokers(0), 2, ground("aaba", at_hand=(3,))) == brokers(0, 2)


def test_should_give_the_first_place_to_who_is_preferred_least() -> None:
    load = Load.of([brokers(0), brokers(1), brokers(3, 2), brokers(3, 2)])
    assert refitted(brokers(0), 1, ground("xxxx", leaving=(0,)), load) == brokers(2)


def test_should_keep_who_leaves_when_nobody_can_take_over() -> None:
    assert refitted(brokers(0, 1), 2, ground("ab", leaving=(0,))) == brokers(0, 1)


@given(st.text("abc", min_size=1, max_size=8), st.data())
def test_should_move_no_more_than_it_must(zones: str, data: st.DataObject) -> None:
    all_brokers = [BrokerId(number) for number in range(len(zones))]
    current = tuple(data.draw(st.lists(st.sampled_from(all_brokers), min_size=1, max_size=5, unique=True)))
    leaving = tuple(data.draw(st.lists(st.sampled_from(all_brokers), max_size=3, unique=True)))
    replication = data.draw(st.integers(1, 5))
    on = ground(zones, leaving=leaving)

    after = refitted(current, replication, on)

    assert len({*after}) == len(after)
    assert refitted(after, replication, on) == after, "once is enough"
    wanted = [broker for broker in current if broker not in leaving]
    assert {*wanted[:1]} <= {*after}, "the first that may stay stays"
    assert len({*after} & {*wanted}) == min(len(wanted), max(replication, 0), len(after))
    if len(on.candidates) >= replication:
        assert len(after) == replication
        assert not {*after} & {*leaving}


# Brokers that were added


def levelled(own: list[Replicas], on: Ground, moves_max: int = 10) -> tuple[list[Replicas], int]:
    """Step by step until nothing changes -> (where they stand, how many data moves that took)."""
    moves, placed = 0, list(own)
    for step in count():
        assert step < 1000
        changed = level(placed, on, moves_max, lambda _: True)
        if not changed:
            break
        moving = [index for index, after in changed.items() if {*after} != {*placed[index]}]
        assert len(moving) <= moves_max
        moves += len(moving)
        for index, after in changed.items():
            placed[index] = after
    return placed, moves


def unevenness(counts: Counter[BrokerId], zones: str) -> int:
    each = [counts[BrokerId(number)] for number in range(len(zones))]
    return max(each) - min(each)


def test_should_give_a_new_broker_its_share_and_move_nothing_else() -> None:
    own = spread(6, 1, candidates("xx"), own=[], others=NO_LOAD)
    after, moves = levelled(own, ground("xxx"))
    assert Counter(after) == {(0,): 2, (1,): 2, (2,): 2}
    assert moves == 2


def test_should_use_a_new_zone() -> None:
    own = spread(4, 2, candidates("aa"), own=[], others=NO_LOAD)
    after, moves = levelled(own, ground("aab"))
    assert all(BrokerId(2) in replicas for replicas in after)
    assert moves <= 5


def test_should_part_who_shares_a_zone_before_it_balances() -> None:
    own = spread(12, 2, candidates("bb"), own=[], others=NO_LOAD)
    after, moves = levelled(own, ground("bbabbc"), moves_max=1)
    assert Counter(broker for replicas in after for broker in replicas) == {0: 3, 1: 3, 2: 6, 3: 3, 4: 3, 5: 6}
    assert moves == 12 + 6, "twelve to other zones, six within the zone that has four brokers: no replica moves twice"


def test_should_change_the_order_where_that_is_enough() -> None:
    own = [brokers(0, 1), brokers(0, 1), brokers(0, 1)]
    assert level(own, ground("ab"), 0, lambda _: True) == {0: brokers(1, 0)}


def test_should_not_touch_what_may_not_move() -> None:
    own = [brokers(0, 1), brokers(0, 1), brokers(0, 1)]
    assert level(own, ground("ab"), 0, lambda index: index == 2) == {2: brokers(1, 0)}


def test_should_not_crowd_a_zone_for_balance() -> None:
    own = [brokers(0, 2), brokers(0, 2), brokers(0, 2), brokers(0, 2)]
    after, _ = levelled(own, ground("abb"))
    assert all(replicas[0] == 0 or replicas[1] == 0 for replicas in after)


@pytest.mark.parametrize("zones", ["x", "abc", "abcabc", "aabb"])
def test_should_leave_alone_what_was_just_spread(zones: str) -> None:
    for replication in range(1, len(zones) + 1):
        own = spread(25, replication, candidates(zones), own=[], others=NO_LOAD)
        assert level(own, ground(zones), 10, lambda _: True) == {}


@example(zones="bbabbc", replication=2, before=2, partitions=12, moves_max=1)
@given(
    zones=st.text("abc", min_size=1, max_size=8),
    replication=st.integers(1, 4),
    before=st.integers(1, 8),
    partitions=st.integers(0, 30),
    moves_max=st.integers(1, 9),
)
def test_should_come_to_an_end_and_be_more_even(
    zones: str, replication: int, before: int, partitions: int, moves_max: int
) -> None:
    before = min(before, len(zones))
    replication = min(replication, before)
    own = spread(partitions, replication, candidates(zones)[:before], own=[], others=NO_LOAD)
    on = ground(zones)
    after, moves = levelled(own, on, moves_max)
    assert [len({*replicas}) for replicas in after] == [replication] * partitions
    assert all(on.crowd(now) <= on.crowd(then) for now, then in zip(after, own, strict=True))
    assert moves <= partitions * replication, "no more than if each replica moved once"
    if len({*zones}) == 1:
        assert unevenness(Load.of(after).replicas, zones) <= 2
        assert unevenness(Load.of(after).leaders, zones) <= 2


def candidates_in(*zones: str) -> list[Candidate]:
    return [Candidate(BrokerId(number), zone) for number, zone in enumerate(zones)]


def spread_of(counts: Counter[BrokerId], among: list[Candidate]) -> int:
    per_broker = [counts[candidate.broker] for candidate in among]
    return max(per_broker) - min(per_broker)


@st.composite
def equal_zones(draw: st.DrawFn) -> list[Candidate]:
    zones = draw(st.integers(1, 5))
    names = [f"zone-{number % zones}" for number in range(zones * draw(st.integers(1, 3)))]
    return candidates_in(*draw(st.permutations(names)))


@st.composite
def any_zones(draw: st.DrawFn) -> list[Candidate]:
    return candidates_in(*draw(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=12)))


loads = st.lists(st.tuples(st.integers(0, 14).map(BrokerId)), max_size=30).map(Load.of)


def test_should_give_each_broker_two_leaders_when_six_partitions_meet_three_brokers() -> None:
    placed = spread(6, 1, candidates_in("", "", ""), own=[], others=NO_LOAD)
    assert placed == [(0,), (1,), (2,), (0,), (1,), (2,)]


def test_should_prefer_the_broker_that_others_load_least_when_the_topic_has_none_anywhere() -> None:
    others = Load.of([(BrokerId(0),), (BrokerId(0),), (BrokerId(1),)])
    assert spread(1, 1, candidates_in("", "", ""), own=[], others=others) == [(2,)]


def test_should_balance_the_topic_before_the_cluster_when_a_broker_is_new() -> None:
    others = Load.of([(BrokerId(0),), (BrokerId(1),)] * 50)
    placed = spread(6, 1, candidates_in("", "", ""), own=[], others=others)
    assert Counter(placed) == {(0,): 2, (1,): 2, (2,): 2}


def test_should_use_every_zone_when_one_zone_has_most_brokers() -> None:
    placed = spread(4, 2, candidates_in("a", "a", "a", "b"), own=[], others=NO_LOAD)
    assert all(BrokerId(3) in replicas for replicas in placed)


def test_should_refuse_when_there_are_fewer_brokers_than_replicas() -> None:
    with pytest.raises(AssertionError):
        spread(1, 2, candidates_in(""), own=[], others=NO_LOAD)


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
