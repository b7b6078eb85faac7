"""A broker that reads its logs through: whom it tells of damage, and when it ends its life for it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from headrace.core.log.segments import LogConfig
from headrace.core.resources.partition_set import PartitionState
from headrace.core.resources.topic import Durability
from headrace.core.types import LeaderEpoch, Offset, PartitionKey, Seat, TopicName, TopicUid
from headrace_broker.metrics import Metrics
from headrace_broker.partition.housekeeping import Verification
from headrace_broker.partition.partition import Partition
from headrace_broker.storage.disk import shown
from headrace_broker.storage.partition_files import PartitionFiles
from headrace_broker.storage.partition_store import PartitionStore
from tests.support.logs import fill, flip_bit, log_files
from tests.support.partition_sets import partition_state, seat
from tests.support.partitions import KEY, ME, led_partition
from tests.support.patience import patient

OTHER, THIRD = seat(1), seat(2)


@dataclass
class Broker:
    """What a verification is given."""

    partition: Partition
    states: Mapping[PartitionKey, PartitionState] = field(default_factory=dict)
    ready: Collection[Seat] = ()
    warned: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    others: Sequence[Partition] = ()
    """Before `partition`."""
    pauses: Callable[[], bool] = lambda: False
    """Asked after each piece that is read although nobody has doubts: whether to wait for `goes_on`."""
    paused: asyncio.Event = field(default_factory=asyncio.Event)
    goes_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def pace(self, read_bytes: int) -> None:
        if self.pauses():
            self.paused.set()
            await self.goes_on.wait()

    def open_partitions(self) -> list[Partition]:
        return [*self.others, self.partition]

    def find(self, key: PartitionKey) -> Partition | None:
        return next((each for each in self.open_partitions() if each.key == key), None)

    def ready_seats(self, now_ms: int) -> Collection[Seat]:
        return self.ready

    def warn(self, topic: TopicName, uid: TopicUid, reason: str, message: str) -> None:
        self.warned.append(f"{topic} {reason}: {message}")

    def verification(self) -> Verification:
        return Verification(ME, self, self, self.warn, self.registry, pace=self.pace)

    @property
    def damaged(self) -> float | None:
        return self.registry.get_sample_value("headrace_broker_damaged_partitions")

    def share(self, *isr: Seat, leader: Seat | None = ME) -> None:
        replicas = (ME.broker, OTHER.broker, THIRD.broker)
        self.states = {KEY: partition_state(leader=leader, isr=isr, replicas=replicas)}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """With a log of several segments."""
    async with led_partition(tmp_path / "data", Metrics(), lambda reason: None) as partition:
        partition.log.config = LogConfig(20_000, 1 << 40, Durability.FSYNC)
        fill(partition.log, 60, epoch=LeaderEpoch(1))
        yield Broker(partition)


def damage(broker: Broker) -> Offset:
    second = log_files(broker.partition.log.directory)[1]
    flip_bit(second, 8 * 700)
    return Offset(int(second.stem))


async def look(verification: Verification, broker: Broker) -> None:
    await verification.read_through()
    await verification.look(broker.ended.append)


async def test_should_tell_of_damage_once_and_go_on_while_nobody_else_has_it(broker: Broker) -> None:
    verification, offset = broker.verification(), damage(broker)
    broker.share(ME)
    for _ in range(3):
        await look(verification, broker)
    (warned,) = broker.warned
    assert f"DataDamaged: partition 0: {shown(broker.partition.log.directory)}" in warned
    assert f"offset {offset}" in warned
    assert broker.damaged == 1
    assert broker.ended == []


async def test_should_end_this_life_once_others_have_it(broker: Broker) -> None:
    verification = broker.verification()
    damage(broker)
    broker.share(ME, OTHER)
    broker.ready = {ME}
    await look(verification, broker)
    assert broker.ended == []
    broker.ready = {ME, OTHER}
    await look(verification, broker)
    assert len(broker.ended) == 1


@pytest.mark.parametrize("isr", [(ME,), (ME, OTHER)])
async def test_should_forget_what_was_deleted_meanwhile(broker: Broker, isr: tuple[Seat, ...]) -> None:
    verification = broker.verification()
    damage(broker)
    await look(verification, broker)
    await broker.partition.log.delete_before(Offset(50))
    broker.share(*isr)
    broker.ready = {OTHER}
    await look(verification, broker)
    assert (broker.damaged, broker.ended) == (0, [])


async def test_should_look_again_when_somebody_came_upon_damage(broker: Broker) -> None:
    verification = broker.verification()
    await look(verification, broker)
    damage(broker)
    await look(verification, broker)
    assert broker.warned == []
    broker.partition.log.verification.is_suspect = True
    await look(verification, broker)
    assert len(broker.warned) == 1


async def test_should_hand_a_suspect_over_while_everything_else_is_still_being_read(
    broker: Broker, tmp_path: Path
) -> None:
    broker.pauses = lambda: True
    verification = broker.verification()
    async with led_partition(tmp_path / "other", Metrics(), lambda reason: None, number=1) as long_one:
        fill(long_one.log, 60, epoch=LeaderEpoch(1))
        broker.others = (long_one,)
        async with asyncio.timeout(patient(30)), asyncio.TaskGroup() as tasks:
            tasks.create_task(verification.read_through())
            await broker.paused.wait()
            damage(broker)
            broker.partition.log.verification.is_suspect = True
            broker.share(ME, OTHER)
            broker.ready = {OTHER}
            await verification.look(broker.ended.append)
            (ended,) = broker.ended
            broker.goes_on.set()
    assert str(broker.partition.place) in ended


async def test_should_believe_whoever_has_found_damage_and_not_whoever_was_there_before_it(broker: Broker) -> None:
    broker.pauses = lambda: True
    verification = broker.verification()
    async with asyncio.timeout(patient(30)), asyncio.TaskGroup() as tasks:
        tasks.create_task(verification.read_through())
        await broker.paused.wait()
        flip_bit(log_files(broker.partition.log.directory)[0], 8 * 700)
        broker.partition.log.verification.is_suspect = True
        await verification.look(broker.ended.append)
        assert broker.damaged == 1
        broker.goes_on.set()
    assert (broker.damaged, len(broker.warned)) == (1, 1)


async def test_should_not_end_one_life_after_the_other(broker: Broker) -> None:
    verification = broker.verification()
    verification.be_patient()
    damage(broker)
    broker.share(ME, OTHER)
    broker.ready = {OTHER}
    await look(verification, broker)
    assert (broker.damaged, broker.ended) == (1, [])


@pytest.mark.parametrize(
    ("isr", "ready", "cut"),
    [((OTHER,), {OTHER}, True), ((ME, OTHER), {OTHER}, True), ((OTHER,), set(), False), ((ME,), {ME, OTHER}, False)],
)
async def test_should_have_the_log_cut_only_where_others_still_have_it(
    broker: Broker, tmp_path: Path, isr: tuple[Seat, ...], ready: set[Seat], cut: bool
) -> None:
    verification, offset = broker.verification(), damage(broker)
    await look(verification, broker)
    broker.share(*isr, leader=OTHER)
    broker.ready = ready

    verification.end()
    await verification.cut(PartitionStore(tmp_path / "data", lambda key: None))

    files = PartitionFiles(broker.partition.log.directory)
    place = files.cut_at()
    assert (place.offset if place else None) == (offset if cut else None)
    assert files.void_before() == (ME.incarnation + 1 if cut else 0)
