"""Batches among replicas of one partition: acknowledged once, whether cut, joined, repeated or of another epoch."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace.core.errors import DivergedLogError
from headrace.core.log.epochs import Fence
from headrace.core.records.columns import columns_of, encode_batch
from headrace.core.records.header import ProducerNumbers
from headrace.core.records.raw import RawBatch, split_batches
from headrace.core.replication.isr import Ends
from headrace.core.resources.topic import Durability
from headrace.core.types import Acks, LeaderEpoch, Offset, Record
from headrace_broker.partition.queries import ProduceQuery
from tests.support.batches import TIMESTAMP_MS
from tests.support.logs import NOW_MS
from tests.support.replica_group import ReplicaGroup, produce, produce_batches, replica_group
from tests.support.replicas import stamped
from tests.support.waiting import eventually

LEADER = ProduceQuery(Acks.LEADER, 30_000, Fence())
BRIEF = ProduceQuery(Acks.ALL, 200, Fence())


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[ReplicaGroup]:
    async with replica_group(tmp_path) as group:
        yield group


def numbered(sequence: int, *values: bytes) -> RawBatch:
    records = columns_of([Record(None, value, TIMESTAMP_MS) for value in values or (b"v",)])
    return split_batches(encode_batch(records, numbers=ProducerNumbers(7, 0, sequence)), batch_bytes_max=1 << 20)[0]


@pytest.mark.parametrize("start", [0, 2])
async def test_should_take_a_batch_that_compaction_has_joined_across_its_end(group: ReplicaGroup, start: int) -> None:
    """And across its start, where it has one."""
    for offset in range(3):
        group[2].log.append_replicated([stamped(offset, 1)], NOW_MS)
    await group[2].log.delete_before(Offset(start))
    await group[2].log.sync()
    group[0].log.append_replicated([stamped(0, 1, records=5)], NOW_MS)
    await group[0].log.sync()
    for broker in (0, 2):
        group.kill(broker)
        group.start(broker)
    group.elect(0, isr=(0,))
    await group.agree()
    assert group[2].log.log_end_offset == 5


async def test_should_know_a_batch_again_that_another_leader_took(group: ReplicaGroup) -> None:
    group.elect(0)
    assert await produce_batches(group[0], numbered(0, b"a", b"b")) == 0
    group.elect(1)
    assert await produce_batches(group[1], numbered(0, b"a", b"b")) == 0
    assert await produce_batches(group[1], numbered(2, b"c")) == 2
    group.kill(2)
    group.start(2)
    group.elect(2)
    assert await produce_batches(group[2], numbered(2, b"c")) == 2
    await group.agree()
    assert group[2].log.log_end_offset == 3


async def test_should_acknowledge_a_repeated_batch_only_when_it_is_committed(group: ReplicaGroup) -> None:
    group.elect(0)
    group.cut_off = {2}
    with pytest.raises(Exception, match="not committed in time"):
        await produce_batches(group[0], numbered(0), query=BRIEF)
    await eventually(lambda: group[1].log.durable_end == 1, "one follower has it")
    group.elect(1)
    again = asyncio.create_task(produce_batches(group[1], numbered(0)))
    await eventually(lambda: group[0].replica.accepts(LeaderEpoch(3)), "the former leader follows")
    assert not again.done()
    group.cut_off.clear()
    assert await again == 0
    await group.agree()
    assert group[1].log.log_end_offset == 1


async def test_should_forget_a_producers_batch_with_the_log_that_is_cut(group: ReplicaGroup) -> None:
    group.elect(0)
    await produce_batches(group[0], numbered(0))
    group.cut_off, group.deaf = {0}, {0}
    await produce_batches(group[0], numbered(1), query=LEADER)
    group.elect(1, isr=(1, 2))
    assert await produce_batches(group[1], numbered(1)) == 1
    group.heal()
    await group.agree()
    group.elect(0)
    assert await produce_batches(group[0], numbered(1)) == 1


async def test_should_vote_with_what_is_written_where_that_is_promised(tmp_path: Path) -> None:
    async with replica_group(tmp_path, durability=Durability.REPLICATED) as group:
        group.elect(0)
        await produce(group[0], b"a")
        assert all(group[broker].log.durable_end == 0 for broker in range(3))
        await group.agree()


async def test_should_drop_what_comes_of_another_epoch_or_is_none_of_its_log(group: ReplicaGroup) -> None:
    group.elect(0)
    await produce(group[0], b"a")
    await group.agree()
    follower, batch = group[1], [b"".join(stamped(5, 2).buffers)]
    for sent in (batch, [b"of an older leader: nobody looks at it"]):
        follower.shell.received(LeaderEpoch(1), sent, Offset(6), Offset(0))
    assert follower.log.log_end_offset == 1
    with pytest.raises(DivergedLogError, match="does not follow"):
        follower.shell.received(LeaderEpoch(2), batch, Offset(6), Offset(0))
    group[0].shell.follower_reported(group.seat(1), LeaderEpoch(1), Ends(Offset(9), Offset(9)))
    assert group[0].high_watermark == 1


async def test_should_say_how_well_it_is_kept(group: ReplicaGroup) -> None:
    group.elect(0, isr=(0, 1))
    await produce(group[0], b"a")
    await group.agree()
    group.cut_off = {2}
    await produce(group[0], b"a", b"b")
    registry = group.members[0].metrics.registry
    group.members[0].metrics.watch_partitions(lambda: [group[0].gauges()])
    labels = {"namespace": "default", "topic": "flights", "partition": "0"}

    def value(name: str, **more: str) -> float | None:
        return registry.get_sample_value(f"headrace_broker_{name}", more)

    assert (value("under_replicated_partitions"), value("under_min_isr_partitions")) == (1, 0)
    assert (value("leads", **labels), value("replicas", **labels), value("in_sync_replicas", **labels)) == (1, 3, 2)
    assert value("replica_lag_records", **labels, follower="1") == 0
    assert value("replica_lag_records", **labels, follower="2") == 2
    assert group[1].gauges().redundancy is None
