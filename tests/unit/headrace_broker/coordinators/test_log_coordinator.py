"""One partition's groups on a real log: what is told is written, and what cannot be written is never told."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from headrace.core.errors import (
    CoordinatorLoadingError,
    GroupNotEmptyError,
    NotCoordinatorError,
    UnknownMemberError,
    UnreadableBatchError,
)
from headrace.core.groups.assignment import Subscription
from headrace.core.groups.entries import OffsetValue
from headrace.core.groups.events import (
    CommitReceived,
    Done,
    HeartbeatReceived,
    JoinReceived,
    Membership,
    Offsets,
    OffsetsAsked,
    Reply,
)
from headrace.core.groups.group_machine import TopicsListed
from headrace.core.groups.identity import GroupEpoch, GroupName, GroupType, MemberId, TopicShape
from headrace.core.log.epochs import Fence
from headrace.core.records.columns import columns_of
from headrace.core.records.raw import split_batches
from headrace.core.resources.partition_set import PartitionState
from headrace.core.types import (
    Acks,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    PartitionId,
    PartitionKey,
    RecordContent,
    Seat,
    TopicUid,
)
from headrace_broker.clock import wall_ms
from headrace_broker.coordinators.group_coordinator import GroupCoordinator
from headrace_broker.coordinators.writer_coordinator import COMMITS_LOG
from headrace_broker.metrics import Metrics
from headrace_broker.partition.partition import Partition
from headrace_broker.partition.queries import ProduceQuery
from tests.support.batches import batch_of, encoded, poisoned
from tests.support.failing_disk import failing_sync
from tests.support.partition_sets import partition_state, seat
from tests.support.partitions import ME, led_partition
from tests.support.waiting import eventually

GROUP = GroupName("default", "billing")
FLIGHTS = PartitionKey(TopicUid("uid-flights"), PartitionId(0))
TOPICS = TopicsListed("default", {"flights": TopicShape(FLIGHTS.uid, 2)})


class Told:
    """A listener that writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, object]] = []

    def wanted(self, group: GroupName, group_type: GroupType) -> None:
        self.heard.append(("wanted", (group, group_type)))

    def began(self, groups: Collection[GroupName], took_s: float) -> None:
        assert took_s >= 0
        self.heard.append(("began", [*groups]))

    def changed(self, group: GroupName) -> None:
        self.heard.append(("changed", group))

    def ignored(self, group: GroupName, reason: str) -> None:
        self.heard.append(("ignored", reason))

    def committed(self, group: GroupName, offsets: int) -> None:
        self.heard.append(("committed", offsets))

    def ended(self, groups: Collection[GroupName]) -> None:
        self.heard.append(("ended", [*groups]))

    def count(self, what: str) -> int:
        return sum(kind == what for kind, _ in self.heard)


class Asker:
    def __init__(self, coordinator: GroupCoordinator) -> None:
        self.coordinator, self.shell = coordinator, coordinator.shell
        self.requests = coordinator.shell.requests

    def commit(self, offset: int) -> "asyncio.Future[Reply]":
        request = CommitReceived(self.requests.next_number(), {FLIGHTS: OffsetValue(Offset(offset))})
        return self.coordinator.ask(GROUP, request)

    def join(self) -> "asyncio.Future[Reply]":
        request = JoinReceived(self.requests.next_number(), MemberId("m1"), Subscription.parse(["flights"]))
        return self.coordinator.ask(GROUP, request)

    def heartbeat(self, *, wait_ms: int = 0) -> "asyncio.Future[Reply]":
        number = self.requests.next_number()
        request = HeartbeatReceived(number, MemberId("m1"), GroupEpoch(1), 0, frozenset(), wait_ms=wait_ms)
        return self.coordinator.ask(GROUP, request)

    def is_ticking(self) -> bool:
        return self.shell.is_ticking

    async def offset(self) -> int | None:
        reply = await self.coordinator.ask(GROUP, OffsetsAsked(self.requests.next_number()))
        assert isinstance(reply, Offsets)
        return reply.offsets[FLIGHTS].offset if FLIGHTS in reply.offsets else None


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
async def partition(tmp_path: Path) -> AsyncIterator[Partition]:
    async with led_partition(tmp_path / "data", Metrics(), lambda _: None) as partition:
        yield partition


def coordinated(partition: Partition, told: Told) -> AbstractAsyncContextManager[Asker]:
    return _coordinated(partition, told)


@asynccontextmanager
async def _coordinated(partition: Partition, told: Told) -> AsyncIterator[Asker]:
    coordinator = GroupCoordinator(partition, [told])
    coordinator.shell.step(TOPICS)
    task = asyncio.create_task(coordinator.shell.run())
    await eventually(lambda: coordinator.shell.is_active or not partition.leads, "it is active")
    yield Asker(coordinator)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert coordinator.shell.requests.waiting == 0, "everybody is answered"


def elected(leader: Seat, epoch: int) -> PartitionState:
    return partition_state(0, leader=leader, leader_epoch=LeaderEpoch(epoch), partition_epoch=PartitionEpoch(epoch))


def led_again(partition: Partition, epoch: int) -> None:
    partition.apply(elected(ME, epoch))


async def test_should_read_what_it_wrote(partition: Partition, told: Told) -> None:
    async with coordinated(partition, told) as asker:
        assert await asker.commit(5) == Done()
        assert await asker.commit(6) == Done()
        assert isinstance(await asker.join(), Membership)
    assert told.heard[-1] == ("ended", [GROUP])
    async with coordinated(partition, told) as asker:
        assert ("began", [GROUP]) in told.heard
        assert await asker.offset() == 6
        found = asker.coordinator.find(GROUP)
        assert found is not None
        assert [*found.image.members] == ["m1"]
        with pytest.raises(GroupNotEmptyError):
            await asker.commit(7)
    assert told.count("committed") == 2


async def test_should_take_thousands_of_commits_at_once_each_as_a_batch(partition: Partition, told: Told) -> None:
    async with coordinated(partition, told) as asker:
        answers = await asyncio.gather(*(asker.commit(number) for number in range(3000)))
        assert answers == [Done()] * 3000
        assert await asker.offset() == 2999
    assert told.count("committed") == 3000
    buffers = await partition.log.read(Offset(0), max_bytes=1 << 30, up_to=partition.high_watermark)
    assert len(split_batches(buffers, batch_bytes_max=1 << 20)) == 3000
    async with coordinated(partition, told) as asker:
        assert await asker.offset() == 2999


async def test_should_write_large_decisions_and_tombstones(partition: Partition, told: Told) -> None:
    async with coordinated(partition, told) as asker:
        keys = [PartitionKey(FLIGHTS.uid, PartitionId(number)) for number in range(1000)]
        many = CommitReceived(asker.requests.next_number(), {key: OffsetValue(Offset(1)) for key in keys})
        assert await asker.coordinator.ask(GROUP, many) == Done()
        await asker.join()
        leaving = asker.coordinator.machine.groups[GROUP]
        assert len(leaving.image.offsets) == 1000
    async with coordinated(partition, told) as asker:
        found = asker.coordinator.find(GROUP)
        assert found is not None
        assert len(found.image.offsets) == 1000


async def test_should_refuse_whoever_waits_when_another_leads(partition: Partition, told: Told) -> None:
    async with coordinated(partition, told) as asker:
        await asker.join()
        waiting = asker.heartbeat(wait_ms=3_000)
        partition.apply(elected(seat(1), 2))
        for refused in (waiting, asker.commit(2)):
            with pytest.raises(NotCoordinatorError):
                await refused
        with pytest.raises(NotCoordinatorError):
            asker.coordinator.find(GROUP)
        assert told.heard[-1] == ("ended", [GROUP])
        led_again(partition, 3)
        await eventually(lambda: asker.shell.is_active, "it coordinates again")
        assert isinstance(await asker.join(), Membership)


async def test_should_begin_anew_in_another_epoch_of_its_own(partition: Partition, told: Told) -> None:
    async with coordinated(partition, told) as asker:
        assert await asker.commit(5) == Done()
        waiting = asker.commit(6)
        led_again(partition, 2)
        with pytest.raises(NotCoordinatorError):
            await waiting
        await eventually(lambda: asker.shell.is_active, "it coordinates again")
        # Whether it was committed is not known to who asked; the log says it.
        assert await asker.offset() in (5, 6)
        assert await asker.commit(7) == Done()
    assert told.count("began") == 2


async def test_should_tell_nothing_that_the_disk_did_not_take(partition: Partition, told: Told) -> None:
    async with coordinated(partition, told) as asker:
        assert await asker.commit(5) == Done()
        (segment,) = partition.log.directory.glob("*.log")
        with failing_sync(segment), pytest.raises(NotCoordinatorError):
            await asker.commit(6)
        assert not asker.shell.is_active
        with pytest.raises((NotCoordinatorError, CoordinatorLoadingError)):
            await asker.commit(7)


async def test_should_not_coordinate_what_it_cannot_read(partition: Partition, told: Told) -> None:
    newer = RecordContent(b'["newer",9,"default","billing"]', b"{}", 0)
    batches = split_batches([encoded(columns_of([newer]))], batch_bytes_max=1 << 20)
    await partition.produce(batches, ProduceQuery(Acks.ALL, 30_000, Fence()))
    coordinator = GroupCoordinator(partition, [told])
    task = asyncio.create_task(coordinator.shell.run())
    await eventually(lambda: told.count("ended") > 0, "it has given up")
    with pytest.raises(NotCoordinatorError):
        await coordinator.ask(GROUP, OffsetsAsked(coordinator.shell.requests.next_number()))
    assert told.count("began") == 0
    task.cancel()


async def test_should_tell_refusals_of_strangers(partition: Partition, told: Told) -> None:
    async with coordinated(partition, told) as asker:
        with pytest.raises(UnknownMemberError):
            await asker.heartbeat()
        assert isinstance(await asker.join(), Membership)
        assert await asker.heartbeat() == await asker.heartbeat()


async def test_should_tick_while_there_are_groups_only(partition: Partition, told: Told) -> None:
    async with coordinated(partition, told) as asker:
        assert not asker.is_ticking()
        await asker.join()
        assert asker.is_ticking()
        group = asker.coordinator.machine.groups[GROUP]
        await eventually(lambda: group.image.group.assignment_epoch == 1, "time has passed: it assigns by itself")


async def test_should_know_what_time_it_is_after_a_rest(partition: Partition, told: Told) -> None:
    """Nothing ticks while there are no groups."""
    async with coordinated(partition, told) as asker:
        active_ms = wall_ms()
        await eventually(lambda: wall_ms() > active_ms, "time has passed")
        before_ms = wall_ms()
        await asker.commit(1)
        found = asker.coordinator.find(GROUP)
        assert found is not None
        assert found.image.offsets[FLIGHTS].committed_ms >= before_ms
        assert found.image.group.empty_since_ms >= before_ms


async def test_should_let_go_of_who_has_gone_away(partition: Partition, told: Told) -> None:
    async with coordinated(partition, told) as asker:
        await asker.join()
        waiting = asker.heartbeat(wait_ms=100)
        waiting.cancel()
        assert isinstance(await asker.heartbeat(), Membership)
        await eventually(lambda: asker.requests.waiting == 0, "it was answered all the same")


async def test_should_coordinate_without_a_batch_that_nobody_can_decode(
    partition: Partition, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    async with coordinated(partition, told) as asker:
        assert await asker.commit(5) == Done()
        nonsense = split_batches([poisoned(batch_of(b"nonsense"))], batch_bytes_max=1 << 20)
        await partition.produce(nonsense, ProduceQuery(Acks.ALL, 30_000, Fence()))
        assert await asker.commit(6) == Done()
    async with coordinated(partition, told) as asker:
        assert await asker.offset() == 6
    said = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert [text.partition(" cannot be decoded")[0].partition(": offsets ")[0] for text in said] == [
        "left out of a coordinator's log"
    ]


async def test_should_not_forget_a_decision_of_a_writer(partition: Partition) -> None:
    nonsense = split_batches([poisoned(batch_of(b"nonsense"))], batch_bytes_max=1 << 20)
    await partition.produce(nonsense, ProduceQuery(Acks.ALL, 30_000, Fence()))
    with pytest.raises(UnreadableBatchError):
        [entries async for entries in COMMITS_LOG.entries(partition, partition.high_watermark)]
