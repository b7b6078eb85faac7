"""What a broker writes to PartitionSets, and for what reasons, without an API server: only puts are collected."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from headrace.core.replication.residency import Holding
from headrace.core.replication.seats import LogFacts
from headrace.core.replication.wishes import Local
from headrace.core.resources.partition_set import PartitionSet
from headrace.core.types import BrokerId, LeaderEpoch, Seat
from headrace_broker.coordination.set_calls import WrittenSet
from headrace_broker.coordination.set_writing import SetWriting
from tests.support.partition_sets import partition_set, partition_state, seat

ME, LEADER, THIRD = seat(0), seat(1), seat(2)
EVERYBODY = (ME, LEADER, THIRD)


class Here:
    """A broker that follows one partition."""

    def open_partitions(self) -> list[object]:
        return []

    def find(self, key: object) -> None:
        return None

    def held(self) -> dict[object, Holding]:
        return {}

    def local(self, *_: object, **__: object) -> Local:
        return Local(Holding.OPEN, LogFacts(LeaderEpoch(1)), 2)

    def read(self) -> dict[object, LeaderEpoch]:
        return {}


class View:
    """Everybody is ready."""

    def take_doubted(self) -> set[str]:
        return set()

    def ready_seats(self, now_ms: int) -> tuple[Seat, ...]:
        return EVERYBODY

    def regressed(self, now_ms: int) -> frozenset[str]:
        return frozenset()


class Calls:
    def __init__(self) -> None:
        self.puts: list[PartitionSet] = []

    def put(self, each: WrittenSet, put: PartitionSet) -> None:
        self.puts.append(put)


def follower(calls: Calls) -> SetWriting:
    here = cast("Any", Here())
    writing = SetWriting(ME, cast("Any", View()), here, here, cast("Any", calls))
    replicas = tuple(BrokerId(number) for number in range(3))
    writing.take([partition_set(partition_state(leader=LEADER, isr=EVERYBODY, replicas=replicas))])
    return writing


def leave(writing: SetWriting) -> None:
    writing.leave("it stops")


def step_aside(writing: SetWriting) -> None:
    writing.step_aside("its disk is full")


def step_aside_for_a_while(writing: SetWriting) -> None:
    writing.step_aside("its disk is full")
    writing.step_aside("")


def leave_with_room(writing: SetWriting) -> None:
    writing.leave("it stops")
    writing.step_aside("")


@pytest.mark.parametrize(
    ("say", "stays"), [(leave, False), (step_aside, False), (step_aside_for_a_while, True), (leave_with_room, False)]
)
def test_should_leave_while_there_is_a_reason(say: Callable[[SetWriting], None], stays: bool) -> None:
    calls = Calls()
    writing = follower(calls)
    say(writing)
    writing.look()
    assert [ME in put.partitions[0].isr for put in calls.puts] == ([] if stays else [False])
