"""Leaders are asked for their partitions in bulk; what they do not say is not known."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from aiohttp import web

from headrace.core.errors import HeadraceError
from headrace.core.groups.entries import Image
from headrace.core.groups.identity import GroupName, TopicShape
from headrace.core.groups.lag import Watermarks, parse_watermarks_request, partition_lag, watermarks_object
from headrace.core.resources.lease import BrokerLease
from headrace.core.resources.metadata import Metadata
from headrace.core.resources.partition_set import PartitionSet
from headrace.core.types import BrokerId, Incarnation, Offset, PartitionId, PartitionKey, TopicUid
from headrace_broker.cluster.view import ClusterView
from headrace_broker.coordinators import group_lag as lag_module
from headrace_broker.coordinators.group_lag import GroupLags
from headrace_broker.http.proxy import Proxy, Target
from headrace_broker.partition.partition import Partition
from tests.support.coordinated import Coordinated
from tests.support.group_world import GROUP, World, part
from tests.support.partition_sets import partition_state, seat
from tests.support.waiting import eventually

FLIGHTS = TopicUid("uid-flights")


class NothingHere:
    def find(self, key: PartitionKey) -> Partition | None:
        return None


@dataclass
class Leaders:
    """What other brokers answer, in place of a `Proxy`."""

    known: dict[PartitionKey, Watermarks]
    asked: list[tuple[str, list[PartitionKey]]] = field(default_factory=list)
    answer: Callable[[], web.Response] | None = None

    async def send(self, leader: Target, method: str, path: str, **more: Any) -> web.Response:
        keys = parse_watermarks_request(json.loads(b"".join(more["body"])))
        self.asked.append((f"{method} {leader.url}{path}", keys))
        if self.answer is not None:
            return self.answer()
        found = {key: self.known[key] for key in keys if key in self.known}
        return web.json_response(watermarks_object(found))


def view(partitions: int) -> ClusterView:
    """Of which broker 1 leads the even ones, broker 2 the odd ones, and nobody the last."""
    made = ClusterView("headrace")
    states = [
        partition_state(number, leader=None if number == partitions - 1 else seat(1 + number % 2))
        for number in range(partitions)
    ]
    made.list_sets([PartitionSet(Metadata("flights-0", "default", uid="set"), "flights", FLIGHTS, tuple(states))])
    leases = [
        BrokerLease(Metadata(f"b{each}", "default"), BrokerId(each), Incarnation(1), f"http://{each}")
        for each in (1, 2)
    ]
    made.list_leases(leases, 0)
    return made


@asynccontextmanager
async def looking(
    leaders: Leaders, partitions: int, *, me: int = 0, here: NothingHere | None = None
) -> AsyncIterator[tuple[GroupLags, list[GroupName]]]:
    groups = Coordinated(World({"flights": TopicShape(FLIGHTS, partitions)}))
    groups.shapes = {"flights": TopicShape(FLIGHTS, partitions)}
    groups.join("a")
    changed: list[GroupName] = []
    lags = GroupLags(BrokerId(me), view(partitions), here or NothingHere(), cast("Proxy", leaders), groups)
    lags.on_change = changed.append
    task = asyncio.create_task(lags.run())
    try:
        yield lags, changed
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def ends(*numbers: int) -> dict[PartitionKey, Watermarks]:
    return {part("flights", number): Watermarks(Offset(1), Offset(10 + number)) for number in numbers}


async def test_should_ask_each_leader_once_and_say_what_is_not_known() -> None:
    leaders = Leaders(ends(0, 1, 2, 3))
    async with looking(leaders, 5) as (lags, changed):
        await eventually(lambda: lags.of(GROUP) is not None, "they have answered")
        seen = lags.of(GROUP)
    assert seen is not None
    assert sorted(leaders.asked) == [
        ("POST http://1/v1/brokers/1/watermarks", [part("flights", 0), part("flights", 2)]),
        ("POST http://2/v1/brokers/2/watermarks", [part("flights", 1), part("flights", 3)]),
    ]
    assert seen.topics == {FLIGHTS: None}, "nobody leads the last partition"
    assert [seen.partitions[part("flights", number)] for number in range(5)] == [9, 10, 11, 12, None]
    assert seen.names == {FLIGHTS: "flights"}
    assert changed == [GROUP]


async def test_should_ask_for_so_many_at_once_and_no_more_than_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag_module, "WATERMARKS_ASKED_MAX", 2)
    monkeypatch.setattr(lag_module, "GROUP_LAG_PARTITIONS_MAX", 6)
    leaders = Leaders(ends(*range(9)))
    async with looking(leaders, 10) as (lags, _):
        await eventually(lambda: lags.of(GROUP) is not None, "they have answered")
        seen = lags.of(GROUP)
    assert seen is not None
    assert sorted(len(keys) for _, keys in leaders.asked) == [1, 1, 2, 2]
    assert [number for number in range(10) if seen.partitions[part("flights", number)] is not None] == [*range(6)]


async def test_should_leave_the_event_loop_to_others_among_many_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag_module, "LOOK_ITEMS_MAX", 10)
    turn, looks = 0, Counter[tuple[str, int]]()

    class Here(NothingHere):
        def find(self, key: PartitionKey) -> Partition | None:
            looks["find", turn] += 1
            return None

    def noted(image: Image, key: PartitionKey, watermarks: Watermarks | None) -> int | None:
        looks["lag", turn] += 1
        return partition_lag(image, key, watermarks)

    monkeypatch.setattr(lag_module, "partition_lag", noted)
    async with looking(Leaders({}), 300, me=1, here=Here()) as (lags, _):
        while lags.of(GROUP) is None:
            turn += 1
            await asyncio.sleep(0)
    assert sum(count for (what, _), count in looks.items() if what == "find") == 150
    assert sum(count for (what, _), count in looks.items() if what == "lag") == 300
    assert max(looks.values()) == 10


def refusal() -> web.Response:
    return web.json_response({"code": "NotReady", "detail": "it is starting"}, status=503)


def nonsense() -> web.Response:
    return web.Response(text="<html>")


def silence() -> web.Response:
    raise TimeoutError


def loss() -> web.Response:
    raise HeadraceError("the connection is lost")


@pytest.mark.parametrize("answer", [refusal, nonsense, silence, loss])
async def test_should_know_nothing_of_what_a_leader_does_not_say(
    answer: Callable[[], web.Response], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag_module, "GROUP_LAG_INTERVAL_MS", 20)
    monkeypatch.setattr(lag_module, "GROUP_LAG_INTERVAL_MS_MIN", 20)
    leaders = Leaders({**ends(0, 1), part("flights", 2): Watermarks(Offset(0), Offset(0))})
    leaders.answer = answer
    async with looking(leaders, 3) as (lags, changed):
        await eventually(lambda: lags.of(GROUP) is not None, "it has asked")
        seen = lags.of(GROUP)
        assert seen is not None
        assert {*seen.partitions.values()} == {None}
        asked = len(leaders.asked)
        leaders.answer = None
        await eventually(lambda: bool(lags.of(GROUP) and lags.of(GROUP) != seen), "it asks again")
        assert len(leaders.asked) > asked
        assert changed == [GROUP], "of the topic nothing is known before and after"


async def test_should_look_at_new_groups_before_it_is_time_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag_module, "GROUP_LAG_INTERVAL_MS", 3_600_000)
    monkeypatch.setattr(lag_module, "GROUP_LAG_INTERVAL_MS_MIN", 1)
    leaders = Leaders(ends(0, 1))
    async with looking(leaders, 3) as (lags, _):
        await eventually(lambda: lags.of(GROUP) is not None, "it has asked")
        asked = len(leaders.asked)
        lags.forget([GROUP])
        assert lags.of(GROUP) is None
        lags.look_soon()
        await eventually(lambda: lags.of(GROUP) is not None, "it asks again")
        assert len(leaders.asked) == 2 * asked
        lags.look_soon()
        lags.forget([GROUP])
        lags.look_soon()
        await eventually(lambda: lags.of(GROUP) is not None, "it asks once more")
        assert {PartitionId(key.partition) for _, keys in leaders.asked for key in keys} == {0, 1}
