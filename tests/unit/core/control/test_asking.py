"""Whose turn it is to be asked about, and who has not answered."""

from collections.abc import Collection, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.control.broker_reports import Epochs, PromisedLog, Promises
from headrace.core.control.last_resort import PromiseRequests, Questions
from headrace.core.types import (
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    PartitionId,
    PartitionKey,
    TopicUid,
)
from tests.support.partition_sets import seat

EPOCHS = Epochs(LeaderEpoch(1), PartitionEpoch(1))
LOG = PromisedLog(LeaderEpoch(1), Offset(3), Offset(3))


def key(number: int) -> PartitionKey:
    return PartitionKey(TopicUid("u"), PartitionId(number))


def wanted(replicas: dict[int, Iterable[int]]) -> Questions:
    """By partition: who is to be asked."""
    brokers = {broker for each in replicas.values() for broker in each}
    return {
        BrokerId(broker): {key(number): EPOCHS for number, each in replicas.items() if broker in each}
        for broker in brokers
    }


def partitions(asked: Questions) -> set[int]:
    return {each.partition for keys in asked.values() for each in keys}


def answer(broker: int, *numbers: int) -> dict[BrokerId, Promises]:
    return {BrokerId(broker): Promises(seat(broker), {key(number): LOG for number in numbers})}


def test_should_ask_of_everything_that_fits() -> None:
    asking, all_of_it = PromiseRequests(2), wanted({0: (1, 2), 1: (1, 3)})
    assert asking.turn(all_of_it) == all_of_it
    assert asking.turn(all_of_it) == all_of_it
    assert asking.turn({}) == {}


def test_should_come_round_to_those_that_wait_behind_others_that_never_answer() -> None:
    asking, all_of_it = PromiseRequests(2), wanted(dict.fromkeys(range(5), (1, 2)))
    turns = [partitions(asking.turn(all_of_it)) for _ in range(5)]
    assert turns == [{0, 1}, {2, 3}, {4, 0}, {1, 2}, {3, 4}]


def test_should_ask_all_replicas_of_a_partition_in_the_same_turn() -> None:
    asked = PromiseRequests(1).turn(wanted({0: (1, 2), 1: (2, 3), 2: (3, 4)}))
    assert asked == wanted({0: (1, 2)})


@given(
    replicas=st.dictionaries(st.integers(0, 30), st.sets(st.integers(0, 5), min_size=1), min_size=1),
    most=st.integers(1, 4),
)
def test_should_let_each_have_its_turn(replicas: dict[int, Collection[int]], most: int) -> None:
    asking, all_of_it = PromiseRequests(most), wanted({number: tuple(each) for number, each in replicas.items()})
    seen: set[int] = set()
    for _ in replicas:
        asked = asking.turn(all_of_it)
        assert asked
        assert all(len(keys) <= most for keys in asked.values())
        for number in partitions(asked):
            assert {broker for broker, keys in asked.items() if key(number) in keys} == {*replicas[number]}
        seen |= partitions(asked)
    assert seen == {*replicas}


@pytest.mark.parametrize("most", [1, 2])
def test_should_remember_who_was_silent_until_it_answers_or_nobody_wants_to_know(most: int) -> None:
    asking, all_of_it = PromiseRequests(most), wanted({0: (1, 2), 1: (1, 2)})
    for _ in range(2):
        silent = asking.answered(asking.turn(all_of_it), answer(1, 0, 1))
    assert silent == {key(0): [2], key(1): [2]}
    for _ in range(2):
        silent = asking.answered(asking.turn(all_of_it), answer(1, 0, 1) | answer(2, 1))
    assert silent == {key(0): [2], key(1): []}
    only = wanted({1: (1, 2)})
    assert asking.answered(asking.turn(only), {}) == {key(1): [1, 2]}
