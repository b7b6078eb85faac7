"""What a broker writes to PartitionSets, and for what reasons, without an API server: only puts are collected."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from headrace.core.replication.residency import Holding
from headrace.core.replication.seats import LogFacts
from headrace.core.replication.set_writer import LocalReplica
from headrace.core.resources.partition_set import PartitionSet
from headrace.core.types import BrokerId, LeaderEpoch, PartitionEpoch, PartitionId, PartitionKey, Seat
from headrace.kube.errors import ApiUnavailableError, NotFoundError
from headrace_broker.cluster.sets import SetCalls, SetMetrics, SetWriting, WrittenSet
from headrace_broker.cluster.view import ClusterView
from tests.support.partition_sets import partition_set, partition_state, seat
from tests.support.patience import patient

ME, LEADER, THIRD = seat(0), seat(1), seat(2)
EVERYBODY = (ME, LEADER, THIRD)


class Here:
    """A broker that follows one partition."""

    regressed: frozenset[PartitionKey] = frozenset()

    def __init__(self, *opened: object) -> None:
        self._opened = opened

    def open_partitions(self) -> list[object]:
        return [*self._opened]

    def find_opened_for(self, *_: object) -> None:
        return None

    def held(self) -> dict[object, Holding]:
        return {}

    def local(self, *_: object, **__: object) -> LocalReplica:
        return LocalReplica(Holding.OPEN, LogFacts(LeaderEpoch(1)), 2)

    def read(self) -> dict[object, LeaderEpoch]:
        return {}


class View:
    """Everybody is ready, or some are."""

    ready: tuple[Seat, ...] = EVERYBODY

    def take_doubted(self) -> set[str]:
        return set()

    def ready_seats(self, now_ms: int) -> tuple[Seat, ...]:
        return self.ready

    def regressed(self, now_ms: int) -> frozenset[str]:
        return frozenset()


class Calls:
    def __init__(self) -> None:
        self.puts: list[PartitionSet] = []

        self.written: list[WrittenSet] = []

    def put(self, each: WrittenSet, put: PartitionSet) -> None:
        self.puts.append(put)
        self.written.append(each)

    def learn(self, each: WrittenSet, news: PartitionSet, tell: Callable[[PartitionSet], None]) -> None:
        tell(news)


REPLICAS = tuple(BrokerId(number) for number in range(3))
FOLLOWED = partition_set(partition_state(leader=LEADER, isr=EVERYBODY, replicas=REPLICAS))


def follower(calls: Any, view: View | None = None) -> SetWriting:
    here = cast("Any", Here())
    writing = SetWriting(ME, cast("Any", view or View()), here, here, calls)
    writing.take([FOLLOWED])
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
    writing.check()
    assert [ME in put.partitions[0].isr for put in calls.puts] == ([] if stays else [False])


def test_should_step_aside_as_soon_as_others_are_ready() -> None:
    calls, view = Calls(), View()
    view.ready = (ME, LEADER)
    writing = follower(calls, view)
    step_aside(writing)
    writing.check()
    assert calls.puts == []
    view.ready = EVERYBODY
    writing.check()
    assert [ME in put.partitions[0].isr for put in calls.puts] == [False]


def test_should_remember_a_write_whose_set_is_shown_no_more_until_it_is_decided() -> None:
    calls = Calls()
    writing = follower(calls)
    leave(writing)
    writing.check()
    (each,), (put,) = calls.written, calls.puts
    writing.take([])
    assert writing.sets() == [FOLLOWED]
    each.writer.unanswered()
    writing.take([])
    assert writing.undecided() == 1
    each.writer.landed(put)
    writing.take([])
    assert writing.sets() == []


def test_should_hear_of_a_write_from_a_set_that_has_nothing_here_any_more() -> None:
    calls = Calls()
    writing = follower(calls)
    leave(writing)
    writing.check()
    calls.written[0].writer.unanswered()
    state = partition_state(leader=LEADER, isr=(LEADER,), replicas=REPLICAS[1:], partition_epoch=PartitionEpoch(9))
    elsewhere = partition_set(state)
    writing.take([elsewhere])
    assert writing.undecided() == 0
    writing.take([elsewhere])
    assert writing.sets() == []


class Deaf:
    """An API server that answers no write, and then the set is gone; or another one has its name."""

    def __init__(self, found: PartitionSet | None) -> None:
        self._found = found

    async def replace(self, *_: object) -> None:
        raise ApiUnavailableError("no answer")

    async def get(self, *_: object) -> PartitionSet:
        if self._found is None:
            raise NotFoundError("gone")
        return self._found


@pytest.mark.parametrize("found", [None, replace(FOLLOWED, metadata=replace(FOLLOWED.metadata, uid="made anew"))])
async def test_should_forget_a_write_to_a_set_that_is_found_to_be_gone(found: PartitionSet | None) -> None:
    view = ClusterView("headrace")
    calls = SetCalls(ME, cast("Any", Deaf(found)), view, SetMetrics(CollectorRegistry()), cast("Any", None))
    writing = follower(calls)
    leave(writing)
    writing.check()
    assert writing.undecided() == 1
    writing.take([])
    async with asyncio.timeout(patient(30)):
        while writing.undecided():
            await calls.wait(1)
            writing.check()
    writing.check()
    assert writing.sets() == []


async def test_should_say_so_when_the_last_claim_is_settled_by_others() -> None:
    """The leader has written what a broker that comes back was about to claim: nothing else need change any more."""

    class Resting(Calls):
        async def wait(self, timeout_s: float) -> None:
            await asyncio.sleep(0)

    class Changing(View):
        changed = asyncio.Event()

    again, view = seat(0, 2), Changing()
    here = cast("Any", Here())
    writing = SetWriting(again, cast("Any", view), here, here, cast("Any", Resting()))
    writing.take([FOLLOWED])
    writing.check()
    assert writing.has_claims
    (state,) = FOLLOWED.partitions
    renewed = replace(state, isr=(again, LEADER, THIRD), partition_epoch=PartitionEpoch(state.partition_epoch + 1))
    writing.take([replace(FOLLOWED, partitions=(renewed,))])
    work = asyncio.create_task(writing.run())
    async with asyncio.timeout(patient(30)):
        await view.changed.wait()
    work.cancel()
    assert not writing.has_claims


def test_should_tell_of_a_replica_that_knows_another_leader_of_its_epoch() -> None:
    parted = SimpleNamespace(
        key=FOLLOWED.key(PartitionId(0)), leads=False, replica=SimpleNamespace(regressed="its data went back")
    )
    here = Here(parted)
    writing = SetWriting(ME, cast("Any", View()), cast("Any", here), cast("Any", here), cast("Any", Calls()))
    writing.take([FOLLOWED])
    writing.apply()
    assert (set(writing.regressed), set(here.regressed)) == ({FOLLOWED.topic_uid}, {parted.key})
    parted.replica.regressed = ""
    writing.apply()
    assert not writing.regressed
    assert not here.regressed
