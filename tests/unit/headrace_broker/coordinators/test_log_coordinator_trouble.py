"""A coordinator in trouble: mistakes of its own, a log that raises, decisions that are large, a leader out of touch."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.core.errors import CoordinatorLoadingError, NotCoordinatorError
from headrace.core.groups.assignment import Subscription
from headrace.core.groups.entries import Entry, OffsetValue
from headrace.core.groups.events import CommitReceived, Done, JoinReceived, Membership, Reply
from headrace.core.groups.identity import GroupName, MemberId
from headrace.core.limits import LEASE_DURATION_MS, OFFSET_METADATA_BYTES_MAX
from headrace.core.records.raw import RawBatch
from headrace.core.replication.isr import Ends
from headrace.core.replication.leadership import Contact
from headrace.core.types import BrokerId, LeaderEpoch, Offset, PartitionEpoch, PartitionId, PartitionKey
from headrace_broker.clock import monotonic_ms
from headrace_broker.coordinators.coordinator_log import COORDINATOR_ENCODE_INLINE_BYTES_MAX, EntryCodec
from headrace_broker.coordinators.group_coordinator import OFFSETS_LOG
from headrace_broker.metrics import Metrics
from headrace_broker.partition.partition import Partition
from tests.support.partition_sets import partition_state, seat
from tests.support.partitions import ME, led_partition
from tests.support.patience import patient
from tests.support.waiting import eventually
from tests.unit.headrace_broker.coordinators.test_log_coordinator import FLIGHTS, GROUP, Asker, Told, coordinated

LARGE = {
    PartitionKey(FLIGHTS.uid, PartitionId(number)): OffsetValue(Offset(5), metadata="x" * OFFSET_METADATA_BYTES_MAX)
    for number in range(2 * COORDINATOR_ENCODE_INLINE_BYTES_MAX // OFFSET_METADATA_BYTES_MAX)
}


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
async def partition(tmp_path: Path) -> AsyncIterator[Partition]:
    async with led_partition(tmp_path / "data", Metrics(), lambda _: None) as partition:
        yield partition


class Clumsy(Told):
    """Makes a mistake of the broker's own, in the middle of what a commit releases."""

    def changed(self, group: GroupName) -> None:
        if not self.count("changed"):
            super().changed(group)
            raise RuntimeError("a mistake")


def join(asker: Asker, name: str) -> "asyncio.Future[Reply]":
    number = asker.shell.requests.next_number()
    return asker.coordinator.ask(GROUP, JoinReceived(number, MemberId(name), Subscription.parse(["flights"])))


def commit_large(asker: Asker) -> "asyncio.Future[Reply]":
    return asker.coordinator.ask(GROUP, CommitReceived(asker.shell.requests.next_number(), LARGE))


async def test_should_leave_nobody_waiting_after_a_mistake(partition: Partition) -> None:
    told = Clumsy()
    async with coordinated(partition, told) as asker:
        one, two = join(asker, "one"), join(asker, "two")
        assert isinstance(await one, Membership), "told before the mistake"
        with pytest.raises(NotCoordinatorError, match="none any more"):
            await asyncio.wait_for(two, patient(60))
        assert asker.shell.requests.waiting == 0
        await eventually(lambda: told.count("began") == 2, "it has read its log again")
        found = asker.coordinator.find(GROUP)
        assert found is not None
        assert {*found.image.members} == {"one", "two"}, "whoever is refused is told by the log what became of it"


async def test_should_take_nothing_for_committed_whose_append_went_wrong(
    partition: Partition, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with coordinated(partition, told) as asker:
        assert await asker.commit(5) == Done()
        whole = partition.append
        failures = [RuntimeError("nobody knows of this one")]

        def append(*args: Any) -> Any:
            if failures:
                raise failures.pop()
            return whole(*args)

        monkeypatch.setattr(partition, "append", append)
        lost = asker.commit(6)
        with pytest.raises(NotCoordinatorError):
            await asyncio.wait_for(lost, patient(60))
        await eventually(lambda: asker.shell.is_active, "it coordinates again")
        assert await asker.offset() == 5
        assert await asker.commit(7) == Done()
    assert told.count("committed") == 2


class Gate:
    """`encoded`, of whom large decisions wait in their thread until it is opened."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.error: Exception | None = None
        self.threads: list[threading.Thread] = []
        self.finished = 0
        self._encoded: Callable[[Sequence[Entry]], RawBatch] = OFFSETS_LOG.encoded

    def __call__(self, entries: Sequence[Entry]) -> RawBatch:
        if len(entries) >= len(LARGE):
            self.threads.append(threading.current_thread())
            assert self.opened.wait(patient(60))
            if self.error is not None:
                raise self.error
        batch = self._encoded(entries)
        self.finished += 1
        return batch


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    gate = Gate()
    monkeypatch.setattr(EntryCodec, "encoded", lambda _, entries: gate(entries))
    return gate


async def test_should_encode_large_decisions_elsewhere_and_append_all_in_order(
    partition: Partition, told: Told, gate: Gate
) -> None:
    async with coordinated(partition, told) as asker:
        assert await asker.commit(1) == Done()
        end = partition.log.log_end_offset
        answers = [commit_large(asker), asker.commit(6), commit_large(asker), asker.commit(7)]
        await eventually(lambda: len(gate.threads) == 1, "the first is encoded")
        assert threading.main_thread() not in gate.threads
        assert partition.log.log_end_offset == end, "those behind it wait"
        gate.opened.set()
        assert await asyncio.gather(*answers) == [Done()] * 4
        assert len(gate.threads) == 2
    async with coordinated(partition, told) as asker:
        assert await asker.offset() == 7
        found = asker.coordinator.find(GROUP)
        assert found is not None
        assert found.image.offsets.keys() == LARGE.keys()


async def test_should_begin_again_where_a_decision_cannot_be_encoded(
    partition: Partition, told: Told, gate: Gate
) -> None:
    async with coordinated(partition, told) as asker:
        answers = [commit_large(asker), asker.commit(6)]
        gate.error = RuntimeError("too much")
        gate.opened.set()
        for answer in answers:
            with pytest.raises(NotCoordinatorError):
                await asyncio.wait_for(answer, patient(60))
        await eventually(lambda: asker.shell.is_active, "it coordinates again")
        assert await asker.offset() is None


async def test_should_append_nothing_of_a_term_that_is_over(partition: Partition, told: Told, gate: Gate) -> None:
    async with coordinated(partition, told) as asker:
        large = commit_large(asker)
        await eventually(lambda: len(gate.threads) == 1, "it is encoded")
        end = partition.log.log_end_offset
        partition.apply(partition_state(leader=ME, leader_epoch=LeaderEpoch(2), partition_epoch=PartitionEpoch(2)))
        with pytest.raises(NotCoordinatorError):
            await large
        gate.opened.set()
        await eventually(lambda: asker.shell.is_active and gate.finished > 0, "it coordinates again")
        assert partition.log.log_end_offset == end
        assert await asker.offset() is None


# -- A leader that has followers, and may be out of touch ------------------------------------------------------------


class Touch:
    """How long ago this leader was in touch: with the API server, and with its follower."""

    def __init__(self, partition: Partition) -> None:
        self.age_ms = 0
        self.partition = partition
        partition._contact = lambda: Contact(monotonic_ms() + self.age_ms, monotonic_ms())

    def has_follower(self) -> None:
        state = partition_state(
            leader=ME, replicas=(ME.broker, BrokerId(1)), isr=(ME, seat(1)), partition_epoch=PartitionEpoch(2)
        )
        self.partition.apply(state)

    def follow(self) -> None:
        """The follower has all that there is."""
        end = self.partition.log.log_end_offset
        self.partition.shell.follower_reported(seat(1), LeaderEpoch(1), Ends(end, end), monotonic_ms())

    def lose(self) -> None:
        self.age_ms = 2 * LEASE_DURATION_MS


@pytest.fixture
def touch(partition: Partition) -> Touch:
    touch = Touch(partition)
    touch.has_follower()
    touch.follow()
    return touch


async def answered(touch: Touch, answer: "asyncio.Future[Reply]") -> Reply:
    """Once the follower has what it takes."""

    def is_done() -> bool:
        touch.follow()
        return answer.done()

    await eventually(is_done, "it is answered")
    return await answer


async def test_should_tell_nothing_that_was_not_written_while_it_may_lead_no_more(
    partition: Partition, told: Told, touch: Touch
) -> None:
    """Its state says that it leads: only time has gone by since it heard of anybody."""
    async with coordinated(partition, told) as asker:
        await answered(touch, asker.join())
        assert isinstance(await asker.heartbeat(), Membership)
        touch.lose()
        assert partition.leads
        for said in (asker.heartbeat, asker.offset, lambda: asker.commit(5)):
            with pytest.raises(CoordinatorLoadingError, match="whether it still leads"):
                await said()
        with pytest.raises(CoordinatorLoadingError):
            asker.coordinator.find(GROUP)
        assert asker.shell.is_active, "it is deposed by its log alone"
        touch.age_ms = 0
        assert isinstance(await asker.heartbeat(), Membership)
        assert await asker.offset() is None


async def test_should_tell_what_its_followers_have_though_it_may_lead_no_more(
    partition: Partition, told: Told, touch: Touch
) -> None:
    """The high watermark proves it: who leads next has it, too."""
    async with coordinated(partition, told) as asker:
        touch.lose()
        commit = asker.commit(5)
        await eventually(lambda: partition.log.log_end_offset > partition.high_watermark, "it is written here")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(commit), 0)
        assert await answered(touch, commit) == Done()
        with pytest.raises(CoordinatorLoadingError):
            await asker.offset()
