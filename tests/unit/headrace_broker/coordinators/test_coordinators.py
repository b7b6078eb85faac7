"""All groups of one broker: who coordinates what, what partitions that come and go mean, what is kept for later."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from aiohttp.test_utils import make_mocked_request

from headrace.core.errors import CoordinatorLoadingError, NotCoordinatorError, UnknownGroupError
from headrace.core.groups.assignment import Subscription
from headrace.core.groups.events import JoinReceived, LeaveReceived, Membership, TopicDeleted
from headrace.core.groups.group_machine import TopicsListed
from headrace.core.groups.identity import (
    OFFSETS_TOPIC,
    Assignor,
    GroupName,
    GroupSettings,
    GroupType,
    MemberId,
    TopicShape,
    coordinator_partition,
)
from headrace.core.resources.lease import BrokerLease
from headrace.core.resources.metadata import Metadata
from headrace.core.resources.topic import Topic, TopicSpec
from headrace.core.types import BrokerId, Incarnation, PartitionKey, TopicUid
from headrace.http2.async_transport import AsyncTransport
from headrace_broker.admission import Admission
from headrace_broker.cluster.view import ClusterView
from headrace_broker.coordinators.coordinators import CoordinatorElsewhere, GroupCoordinators
from headrace_broker.coordinators.group_coordinator import GroupCoordinator
from headrace_broker.http.callers import Callers
from headrace_broker.http.groups import GroupRoutes
from headrace_broker.http.json_bodies import JsonBodies
from headrace_broker.http.proxy import Proxy
from headrace_broker.metrics import Metrics
from headrace_broker.partition.partition import Partition
from tests.support.partition_sets import partition_set, partition_state, seat
from tests.support.partitions import KEY, ME, led_partition
from tests.support.waiting import eventually
from tests.unit.headrace_broker.coordinators.test_log_coordinator import Told


def named(count: int, partition: int) -> GroupName:
    """A group that this partition of so many coordinates."""
    return next(
        group
        for group in (GroupName("default", f"g{number}") for number in range(100))
        if coordinator_partition(group, count) == partition
    )


HERE, THERE = named(2, 0), named(2, 1)


def topic(name: str, uid: str, partitions: int) -> Topic:
    metadata = Metadata(namespace="default", name=name, uid=uid)
    return Topic(metadata, TopicSpec.parse({"partitions": partitions, "replicas": 1}))


OFFSETS = topic(OFFSETS_TOPIC, KEY.uid, 2)
FLIGHTS = topic("flights", "uid-flights", 2)


class Open:
    """The partitions that are open here."""

    def __init__(self) -> None:
        self.partitions: dict[PartitionKey, Partition] = {}

    def find(self, key: PartitionKey) -> Partition | None:
        return self.partitions.get(key)


@pytest.fixture
def view() -> ClusterView:
    """Two brokers; the other one leads partition 1."""
    view = ClusterView("headrace")
    view.list_topics([FLIGHTS])
    states = partition_state(0, leader=ME), partition_state(1, leader=seat(1))
    view.list_sets([partition_set(*states, topic=OFFSETS_TOPIC, uid=KEY.uid)])
    leases = [
        BrokerLease(Metadata(name=f"b{number}"), BrokerId(number), Incarnation(1), url=f"http://b{number}")
        for number in range(2)
    ]
    view.list_leases(leases, 0)
    return view


@pytest.fixture
def opened() -> Open:
    return Open()


@pytest.fixture
async def coordinators(view: ClusterView, opened: Open) -> AsyncIterator[GroupCoordinators]:
    made = GroupCoordinators(ME.broker, "default", view, opened)
    running = asyncio.create_task(made.local.run())
    yield made
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await made.local.close()
    assert made.local.waiting == 0


@pytest.fixture
async def partition(tmp_path: Path, view: ClusterView, opened: Open) -> AsyncIterator[Partition]:
    """Partition 0, led here; the offsets topic is there."""
    async with led_partition(tmp_path / "data", Metrics(), lambda _: None) as partition:
        opened.partitions[partition.key] = partition
        view.put_topic(OFFSETS)
        yield partition


async def active(coordinators: GroupCoordinators) -> GroupCoordinator:
    await eventually(lambda: coordinators.coordinates(HERE), "it coordinates")
    target = coordinators.locate(HERE)
    assert isinstance(target, GroupCoordinator)
    return target


async def join(coordinators: GroupCoordinators, target: GroupCoordinator) -> Membership:
    request = JoinReceived(target.shell.requests.next_number(), MemberId("m1"), Subscription.parse(["flights"]))
    reply = await target.ask(HERE, request)
    assert isinstance(reply, Membership)
    return reply


async def test_should_ask_for_the_offsets_topic_until_it_is_there(
    coordinators: GroupCoordinators, view: ClusterView
) -> None:
    told = Told()
    coordinators.listeners.append(told)
    with pytest.raises(CoordinatorLoadingError, match="comes with the first group"):
        coordinators.locate(HERE)
    coordinators.want(HERE, GroupType.SPARK)
    assert told.heard == [("wanted", (HERE, GroupType.SPARK))]
    assert coordinators.leaders() == {}
    view.put_topic(OFFSETS)
    await eventually(lambda: coordinators.leaders() == {0: "http://b0", 1: "http://b1"}, "it is seen")
    coordinators.want(HERE, GroupType.SPARK)
    assert len(told.heard) == 1


async def test_should_know_who_coordinates(
    coordinators: GroupCoordinators, view: ClusterView, opened: Open, partition: Partition
) -> None:
    await active(coordinators)
    elsewhere = coordinators.locate(THERE)
    assert isinstance(elsewhere, CoordinatorElsewhere)
    assert (elsewhere.broker, elsewhere.url, elsewhere.partition) == (1, "http://b1", 1)
    error = elsewhere.error("; ask there")
    assert isinstance(error, NotCoordinatorError)
    assert error.details == {"leader": 1, "url": "http://b1"}
    assert coordinators.find(THERE) is None
    assert not coordinators.coordinates(THERE)
    del opened.partitions[partition.key]
    view.changed.set()
    await eventually(lambda: not coordinators.coordinates(HERE), "it is closed")
    with pytest.raises(CoordinatorLoadingError, match=r"the coordinator of .* starts on broker"):
        coordinators.locate(HERE)
    view.list_sets([])
    with pytest.raises(CoordinatorLoadingError, match="no leader"):
        coordinators.locate(HERE)


async def test_should_remember_settings_for_whom_it_may_coordinate_later(
    coordinators: GroupCoordinators, view: ClusterView, opened: Open, tmp_path: Path
) -> None:
    coordinators.configure(HERE, GroupSettings(session_ms=7_000, assignor=Assignor.RANGE))
    coordinators.configure(THERE, GroupSettings(session_ms=8_000))
    coordinators.configure(THERE, None)
    async with led_partition(tmp_path / "data", Metrics(), lambda _: None) as partition:
        opened.partitions[partition.key] = partition
        view.put_topic(OFFSETS)
        target = await active(coordinators)
        assert (await join(coordinators, target)).session_ms == 7_000
        group = coordinators.find(HERE)
        assert group is not None
        assert coordinators.all() == [group]
        assert group.image.group.inputs.assignor is Assignor.RANGE
        coordinators.configure(HERE, None)
        assert (await join(coordinators, target)).session_ms == 7_000, "it lives on as it was"


async def test_should_describe_nothing_that_is_not_committed(
    coordinators: GroupCoordinators, view: ClusterView, partition: Partition
) -> None:
    target = await active(coordinators)
    async with AsyncTransport() as transport:
        admission = Admission()
        callers = Callers(view, admission)
        bodies, proxy = JsonBodies(callers, admission), Proxy(transport)
        routes = GroupRoutes(ME.broker, view, coordinators, callers, bodies, proxy)
        path = {"namespace": HERE.namespace, "group": HERE.name}
        request = make_mocked_request("GET", "/", match_info=path)
        described = asyncio.create_task(routes.describe(request))
        joining = asyncio.create_task(join(coordinators, target))
        with pytest.raises(UnknownGroupError):
            await described
        await joining
        leaving = target.ask(HERE, LeaveReceived(target.shell.requests.next_number(), MemberId("m1")))
        described = asyncio.create_task(routes.describe(request))
        await asyncio.sleep(0)
        assert coordinators.find(HERE).image.members == {}, "decided"  # type: ignore[union-attr]
        target.shell.depose("it is over")
        for task in (leaving, described):
            with pytest.raises(NotCoordinatorError):
                await task


async def test_should_keep_topics_of_which_all_vanished(
    coordinators: GroupCoordinators, view: ClusterView, partition: Partition
) -> None:
    target = await active(coordinators)
    await join(coordinators, target)
    assert coordinators.names("default")[TopicUid("uid-flights")] == "flights"
    view.list_topics([])
    await asyncio.sleep(0)
    coordinators.local.look()
    assert coordinators.topics("default")["flights"] == TopicShape(TopicUid("uid-flights"), 2)
    assert coordinators.locate(HERE) is target
    assert [*target.machine.groups[HERE].image.group.inputs.topics] == ["flights"]
    view.list_topics([OFFSETS, topic("flights", "uid-flights", 3)])
    await eventually(lambda: coordinators.topics("default")["flights"].partitions == 3, "it is back, and larger")
    assert target.machine.groups[HERE].image.group.inputs.topics["flights"].partitions == 3


async def test_should_refuse_everybody_once_it_drains(coordinators: GroupCoordinators, partition: Partition) -> None:
    target = await active(coordinators)
    assert not coordinators.local.is_loading
    await join(coordinators, target)
    coordinators.local.drain()
    with pytest.raises(NotCoordinatorError):
        await join(coordinators, target)
    coordinators.local.look()
    with pytest.raises(CoordinatorLoadingError):
        coordinators.locate(HERE)


async def test_should_begin_again_after_a_mistake_of_its_own(
    coordinators: GroupCoordinators, partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told()
    coordinators.listeners.append(told)
    target = await active(coordinators)
    await join(coordinators, target)
    group = target.machine.groups[HERE]
    monkeypatch.setattr(group, "step", None)  # it cannot decide anything any more
    with pytest.raises(NotCoordinatorError, match="failed"):
        await join(coordinators, target)
    with pytest.raises(CoordinatorLoadingError, match="about to begin"):
        coordinators.locate(HERE)
    await eventually(lambda: told.count("began") == 2, "it has read its log again")
    found = coordinators.find(HERE)
    assert found is not None
    assert found is not group
    assert [*found.image.members] == ["m1"]


async def test_should_look_at_topics_only_when_one_of_them_changed(
    coordinators: GroupCoordinators, view: ClusterView, partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PartitionSets change all the time, in a cluster of ten thousand topics."""
    await active(coordinators)
    looks: list[int] = []
    look = coordinators._visible.look

    def looking(topics: list[Topic]) -> list[TopicsListed | TopicDeleted]:
        looks.append(len(topics))
        return look(topics)

    monkeypatch.setattr(coordinators._visible, "look", looking)
    view.list_sets([partition_set(partition_state(0, leader=ME), topic=OFFSETS_TOPIC, uid=KEY.uid)])
    coordinators.local.look()
    assert looks == []
    for changed in (topic("flights", "uid-flights", 3), topic("orders", "uid-orders", 1)):
        view.put_topic(changed)
        coordinators.local.look()
    assert len(looks) == 2
    assert coordinators.topics("default").keys() >= {"flights", "orders"}
    view.remove_topic(topic("orders", "uid-orders", 1))
    coordinators.local.look()
    assert len(looks) == 3


async def test_should_wait_for_its_tasks_though_it_has_drained(
    coordinators: GroupCoordinators, partition: Partition
) -> None:
    await active(coordinators)
    (task,) = coordinators.local._tasks.values()
    coordinators.local.drain()
    assert not task.done()
    await coordinators.local.close()
    assert task.done()
