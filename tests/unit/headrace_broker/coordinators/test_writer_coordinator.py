"""Committed batches reach their partitions once, wherever a coordinator before this one has stopped."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from headrace.core.errors import (
    CorruptBatchError,
    HeadraceError,
    NotLeaderError,
    OffsetOutOfRangeError,
    StaleTopicError,
)
from headrace.core.records.raw import RawBatch, split_batches
from headrace.core.replication.producers import Producers
from headrace.core.staging.decisions import Decision, StagedBatch, StagedShare
from headrace.core.staging.writers import STAGING_TOPIC, WriterName, producer_of
from headrace.core.types import LeaderEpoch, Offset, PartitionId, PartitionKey, TopicName, TopicUid
from headrace_broker.coordinators.writer_coordinator import PartitionAccess, RollForward
from headrace_broker.partition.queries import Place
from tests.support.batches import batch_of

WRITER = WriterName("default", "query")
UID = TopicUid("counts")
COUNT = 12
"""Staged batches of one record each, more than a partition remembers."""


@dataclass
class Partitions(PartitionAccess):
    """The staging topic, and one partition that knows its producers as brokers do."""

    log: list[bytes] = field(default_factory=list)
    """Values, as they were appended."""
    acknowledged: int = 0
    troubles: list[HeadraceError] = field(default_factory=list)
    """Raised by the next writes."""
    lost_answers: bool = False
    """Whether those writes are done before they raise."""
    unreadable: HeadraceError | None = None
    _producers: Producers = field(default_factory=Producers)

    async def read(self, place: Place, uid: TopicUid, offset: Offset) -> memoryview:
        assert place.topic == TopicName("home", STAGING_TOPIC)
        if self.unreadable is not None:
            raise self.unreadable
        return memoryview(batch_of(b"%d" % offset))

    async def produce(self, place: Place, uid: TopicUid, batches: Sequence[RawBatch]) -> None:
        trouble = self.troubles.pop(0) if self.troubles else None
        if trouble is not None and not self.lost_answers:
            raise trouble
        end = Offset(len(self.log))
        known = self._producers.repeated([batch.header for batch in batches], end)
        for index, batch in enumerate(batches):
            if index not in known:
                batch.stamp(Offset(len(self.log)), LeaderEpoch(1))
                self._producers.note(batch.header, 0)
                self.log.append(bytes(batch.buffers[1]))
        if trouble is not None:
            raise trouble
        self.acknowledged = len(self.log)


def rolling(partitions: Partitions) -> RollForward:
    return RollForward(partitions, TopicName("home", STAGING_TOPIC), asyncio.Semaphore(2))


def decided(batch: int = 0, count: int = COUNT) -> Decision:
    staged = tuple(StagedBatch(PartitionId(3), Offset(number), Offset(number)) for number in range(count))
    return Decision(batch, TopicUid("staging"), (StagedShare("counts", PartitionKey(UID, PartitionId(0)), staged),), 0)


def bodies(count: int = COUNT) -> list[bytes]:
    each = (split_batches([batch_of(b"%d" % number)], batch_bytes_max=1 << 20) for number in range(count))
    return [bytes(batch.buffers[1]) for (batch,) in each]


@pytest.fixture
def partitions() -> Partitions:
    return Partitions()


async def test_should_write_a_batch_once_and_in_order(partitions: Partitions) -> None:
    assert await rolling(partitions).roll(WRITER, decided()) == ()
    assert partitions.log == bodies()


async def test_should_go_on_where_it_stopped_and_wait_for_what_was_there(partitions: Partitions) -> None:
    """The coordinator before has written nine of twelve, and nobody knows whether they are acknowledged."""
    await rolling(partitions).roll(WRITER, decided(count=9))
    partitions.acknowledged = 0
    assert await rolling(partitions).roll(WRITER, decided()) == ()
    assert partitions.log == bodies()
    assert partitions.acknowledged == COUNT


async def test_should_have_the_acknowledgement_of_what_is_whole(partitions: Partitions) -> None:
    await rolling(partitions).roll(WRITER, decided())
    partitions.acknowledged = 0
    await rolling(partitions).roll(WRITER, decided())
    assert partitions.log == bodies()
    assert partitions.acknowledged == COUNT


@pytest.mark.parametrize("lost_answers", [False, True])
async def test_should_try_again_for_as_long_as_it_takes(partitions: Partitions, lost_answers: bool) -> None:
    partitions.troubles = [NotLeaderError("elsewhere"), NotLeaderError("elsewhere")]
    partitions.lost_answers = lost_answers
    assert await rolling(partitions).roll(WRITER, decided()) == ()
    assert partitions.log == bodies()


async def test_should_drop_what_has_no_place_any_more(partitions: Partitions) -> None:
    partitions.troubles = [StaleTopicError("made anew")]
    assert await rolling(partitions).roll(WRITER, decided()) == ("default/counts/0: made anew",)
    assert partitions.log == []


async def test_should_try_again_what_was_damaged_on_its_way(partitions: Partitions) -> None:
    partitions.troubles = [CorruptBatchError("batch 0: crc32c is not right")]
    assert await rolling(partitions).roll(WRITER, decided()) == ()
    assert partitions.log == bodies()


@pytest.mark.parametrize("error", [OffsetOutOfRangeError("gone"), StaleTopicError("made anew")])
async def test_should_say_that_stages_are_lost(partitions: Partitions, error: HeadraceError) -> None:
    partitions.unreadable = error
    (why,) = await rolling(partitions).roll(WRITER, decided())
    assert "its stages are gone" in why


async def test_should_not_write_a_batch_after_the_next_one(partitions: Partitions) -> None:
    """As a coordinator would that has not heard yet that it is none."""
    await rolling(partitions).roll(WRITER, decided(batch=1, count=3))
    late = asyncio.create_task(rolling(partitions).roll(WRITER, decided(batch=0)))
    done, _ = await asyncio.wait([late], timeout=0.3)
    late.cancel()
    assert not done, "it tries in vain until its term is ended"
    assert len(partitions.log) == 3
    assert producer_of(WRITER, 1, 5).producer_epoch > producer_of(WRITER, 0, 5).producer_epoch


async def test_should_write_what_a_writer_of_a_forgotten_name_writes(partitions: Partitions) -> None:
    """The partition still remembers the first one, and a batch of the same number and size."""
    await rolling(partitions).roll(WRITER, replace(decided(batch=1), since_ms=1_000))
    await rolling(partitions).roll(WRITER, replace(decided(batch=0), since_ms=2_000))
    await rolling(partitions).roll(WRITER, replace(decided(batch=1), since_ms=2_000))
    assert partitions.log == bodies() * 3
