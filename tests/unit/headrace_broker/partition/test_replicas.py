"""Replicas of one partition: whoever leads, and whoever died, what was committed stays, and logs become the same.

Batches among replicas of one partition: acknowledged once, whether cut, joined, repeated or of another epoch.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace.core.errors import (
    CorruptLogError,
    DiskFullError,
    DivergedLogError,
    HeadraceError,
    NotLeaderError,
    NotReadyError,
    OffsetOutOfRangeError,
    StorageFailedError,
)
from headrace.core.log.epochs import Fence
from headrace.core.log.segments import SEGMENT_BYTES_MIN
from headrace.core.records.columns import columns_of, encode_batch
from headrace.core.records.header import ProducerNumbers
from headrace.core.records.raw import RawBatch, split_batches
from headrace.core.replication.isr import Ends
from headrace.core.resources.topic import Durability
from headrace.core.types import Acks, LeaderEpoch, Offset, RecordContent
from headrace_broker.partition.fetch import fetch, find_offset
from headrace_broker.partition.queries import DeleteQuery, Edge, FetchQuery, OffsetsQuery, ProduceQuery, ValueFormat
from tests.support.batches import TIMESTAMP_MS
from tests.support.failing_disk import failing_sync
from tests.support.logs import NOW_MS, flip_bit, log_files
from tests.support.replica_group import ReplicaGroup, produce, produce_batches, replica_group
from tests.support.replicas import epochs_of, stamped
from tests.support.waiting import eventually

LEADER = ProduceQuery(Acks.LEADER, 30_000, Fence())
BRIEF = ProduceQuery(Acks.ALL, 200, Fence())


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[ReplicaGroup]:
    async with replica_group(tmp_path) as group:
        yield group


def fetch_at(offset: Offset | Edge) -> FetchQuery:
    return FetchQuery(offset, 1 << 20, 1 << 20, 0, 0, Fence(), ValueFormat.TEXT)


async def test_should_acknowledge_what_everybody_in_sync_has_on_disk(group: ReplicaGroup) -> None:
    group.elect(0)
    await produce(group[0], b"a", b"b")
    assert [group[broker].log.durable_end for broker in range(3)] == [2, 2, 2]
    await asyncio.gather(*(produce(group[0], bytes(500)) for _ in range(60)))
    await group.agree()


async def test_should_catch_up_when_it_comes_late(tmp_path: Path) -> None:
    async with replica_group(tmp_path, (0, 1)) as group:
        group.elect(0, isr=(0, 1))
        for _ in range(50):
            await produce(group[0], bytes(500), query=LEADER)
        group.start(2)
        await group.agree()
        await eventually(lambda: group[0].replica.wanted_isr([group.seat(2)], 0)[-1] == group.seat(2), "it may join")


async def test_should_drop_what_was_never_committed_when_another_was_elected(group: ReplicaGroup) -> None:
    group.elect(0)
    await produce(group[0], b"a")
    group.cut_off, group.deaf = {0}, {0}
    for value in (b"lost", b"too"):
        await produce(group[0], value, query=LEADER)
    assert group[0].high_watermark == 1
    group.elect(1, isr=(1, 2))
    await produce(group[1], b"b")
    group.heal()
    await group.agree()
    assert epochs_of(group[0].log) == [(2, 0), (3, 1)]
    with pytest.raises(NotLeaderError):
        await produce(group[0], b"c")


async def test_should_agree_after_two_quick_elections_with_diverging_logs(group: ReplicaGroup) -> None:
    group.elect(0)
    await produce(group[0], b"a")
    group.cut_off = {0, 1, 2}
    group.deaf = {1, 2}
    await produce(group[0], b"of 0", query=LEADER)
    group.deaf = {0, 2}
    group.elect(1)
    await produce(group[1], b"of 1", b"of 1", query=LEADER)
    group.elect(0)
    group.heal()
    await group.agree()
    assert group[0].high_watermark == 2, "the new leader's own is kept: it may have been committed"
    assert epochs_of(group[1].log) == epochs_of(group[0].log) == [(2, 0)]


async def test_should_lead_and_follow_in_turns(group: ReplicaGroup) -> None:
    for turn in range(6):
        leader = group[turn % 3]
        group.elect(turn % 3)
        assert await produce(leader, b"x") == turn
    await group.agree()
    assert epochs_of(group[0].log) == [(2 + turn, turn) for turn in range(6)]


async def test_should_never_show_less_as_committed_than_before(group: ReplicaGroup) -> None:
    group.elect(0)
    await produce(group[0], b"a", b"b", b"c")
    await group.agree()
    group.cut_off = {0, 1, 2}
    await produce(group[0], b"d", query=LEADER)
    group.elect(1)
    leader = group[1]
    await eventually(lambda: leader.log.durable_end == 3, "it is on disk")
    assert leader.high_watermark == 3, "inherited"
    assert (await fetch(leader, fetch_at(Offset(1)))).next_offset == 3
    group.heal()
    await group.agree()
    assert leader.high_watermark == 3


async def test_should_not_say_what_is_the_latest_before_all_that_may_be_committed_is(group: ReplicaGroup) -> None:
    group.elect(0)
    await produce(group[0], b"a")
    await group.agree()
    group.cut_off = {2}
    with pytest.raises(Exception, match="not committed in time"):
        await produce(group[0], b"b", query=BRIEF)
    await eventually(lambda: group[1].log.durable_end == 2, "one follower has it")
    group.cut_off = {0, 1, 2}
    group.elect(1)
    leader = group[1]
    assert (leader.high_watermark, leader.log.log_end_offset) == (1, 2)
    for query in (fetch_at(Edge.LATEST), fetch_at(Offset(2))):
        with pytest.raises(NotReadyError, match="there may be more, up to 2"):
            await fetch(leader, query)
    for timestamp in (Edge.LATEST, 1 << 60):
        with pytest.raises(NotReadyError):
            await find_offset(leader, OffsetsQuery(timestamp, Fence()))
    for before in (Edge.LATEST, Offset(2)):
        with pytest.raises(NotReadyError, match="there may be more, up to 2"):
            await leader.delete_records(DeleteQuery(before, Fence()))
    assert (await find_offset(leader, OffsetsQuery(0, Fence()))).offset == 0
    fetched = await fetch(leader, fetch_at(Offset(0)))
    assert (fetched.next_offset, fetched.high_watermark) == (1, None)
    assert await leader.delete_records(DeleteQuery(Offset(1), Fence())) == 1
    with pytest.raises(OffsetOutOfRangeError, match="it holds records from 1 on: read from 1") as gone:
        await fetch(leader, fetch_at(Offset(0)))
    assert gone.value.details == {"logStartOffset": 1}

    group.heal()
    await group.agree()
    with pytest.raises(OffsetOutOfRangeError, match=r"it holds 1 to 2 \(exclusive\)") as gone:
        await fetch(leader, fetch_at(Offset(0)))
    assert gone.value.details == {"logStartOffset": 1, "highWatermark": 2}
    assert (await fetch(leader, fetch_at(Offset(1)))).high_watermark == 2
    assert (await find_offset(leader, OffsetsQuery(Edge.LATEST, Fence()))).offset == 2
    assert await leader.delete_records(DeleteQuery(Edge.LATEST, Fence())) == 2
    with pytest.raises(OffsetOutOfRangeError):
        await fetch(leader, fetch_at(Offset(3)))


async def test_should_count_no_vote_that_died_with_its_voter(group: ReplicaGroup) -> None:
    group.elect(0, isr=(0, 1))
    await produce(group[0], b"a")
    (segment,) = group[1].log.directory.glob("*.log")
    with failing_sync(segment):
        with pytest.raises(Exception, match="not committed in time"):
            await produce(group[0], b"b", query=BRIEF)
        assert group[0].high_watermark == 1
        await eventually(lambda: bool(group.members[1].failures), "its disk fails")
    group.kill(1)
    follower = group.start(1)
    assert follower.replica.me == group.seat(1)
    assert group[0].high_watermark == 1, "it votes in its new life only, once that is in sync"
    group.shrink(0, 1)
    await group.agree()
    assert group[0].high_watermark == 2


async def test_should_go_on_after_a_kill_between_append_and_sync(
    group: ReplicaGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    group.elect(0)
    await produce(group[0], b"a")

    async def never() -> None:
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(group[1].log, "sync", never)
    writing = asyncio.create_task(produce(group[0], b"b"))
    await eventually(lambda: group[1].log.log_end_offset == 2, "it is written")
    assert group[0].high_watermark == 1
    group.kill(1)
    group.start(1)
    group.shrink(0, 1, 2)
    assert await writing == 1
    await group.agree()


async def test_should_keep_what_is_committed_whatever_its_leader_says(group: ReplicaGroup) -> None:
    group.elect(0)
    await produce(group[0], b"a", b"b")
    await produce(group[0], b"c")
    await group.agree()
    group.kill(0)
    broken = group.start(0)
    await broken.log.truncate(Offset(2), allow_below_high_watermark=True)  # A disk that lost what it vouched for.
    group.elect(0)
    streams = group.members[1].streams
    await eventually(lambda: any(isinstance(error, DivergedLogError) for error in streams.errors), "it refuses")
    assert group[1].log.log_end_offset == 3
    assert group[1].high_watermark == 3

    group.shrink(0)
    await eventually(lambda: group[1].log.log_end_offset == 2, "nobody relies on what it holds")


@pytest.mark.parametrize("why", [CorruptLogError("a broken batch"), DiskFullError("no room")])
async def test_should_try_again_when_its_log_could_not_be_cut(
    group: ReplicaGroup, why: HeadraceError, monkeypatch: pytest.MonkeyPatch
) -> None:
    group.elect(0)
    await produce(group[0], b"a")
    group.cut_off, group.deaf = {0}, {0}
    await produce(group[0], b"lost", b"too", query=LEADER)
    group.elect(1, isr=(1, 2))
    await produce(group[1], b"b")
    truncate, refused = group[0].log.truncate, list[Offset]()

    async def refuse_once(end: Offset, *, allow_below_high_watermark: bool = False) -> Offset:
        if not refused:
            refused.append(end)
            raise why
        return await truncate(end, allow_below_high_watermark=allow_below_high_watermark)

    monkeypatch.setattr(group[0].log, "truncate", refuse_once)
    group.heal()
    await group.agree()
    assert refused == [1]
    assert group.members[0].failures == []


async def test_should_give_up_when_its_log_was_cut_in_part(
    group: ReplicaGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    group.elect(0)
    group.cut_off, group.deaf = {0}, {0}
    await produce(group[0], b"lost", query=LEADER)
    group.elect(1, isr=(1, 2))
    await produce(group[1], b"b")

    async def fail(end: Offset, *, allow_below_high_watermark: bool = False) -> Offset:
        raise StorageFailedError("EIO")

    monkeypatch.setattr(group[0].log, "truncate", fail)
    group.heal()
    await eventually(lambda: bool(group.members[0].failures), "it stops")
    group.elect(0, isr=(0, 1, 2))
    assert not group[0].leads


async def test_should_follow_a_leader_that_was_not_in_sync_once_it_is_not_either(group: ReplicaGroup) -> None:
    group.elect(0, isr=(0, 1))
    group.cut_off = {2}
    await produce(group[0], b"a", b"b")
    group.cut_off.clear()
    group.elect(2, isr=(2,))  # Unclean: everybody in sync was lost, and came back later.
    assert await produce(group[2], b"c") == 0
    await group.agree()
    assert group[0].high_watermark == 1


@pytest.mark.parametrize("left", [0, 2])
async def test_should_follow_a_leader_whose_log_ends_below_what_it_has_deleted(group: ReplicaGroup, left: int) -> None:
    """Nothing of its log is in the leader's, nor is its start: it begins as a new replica does."""
    group.elect(0, isr=(0, 1))
    group.cut_off = {2}
    for _ in range(4 + left):
        await produce(group[0], b"a")
    await group[0].delete_records(DeleteQuery(Offset(4), Fence()))
    await eventually(lambda: group[1].log.log_start_offset == 4, "its follower too")
    await group[0].checkpoint()
    group.cut_off.clear()
    group.elect(2, isr=(2,))  # Unclean, as above: it has nothing.
    assert await produce(group[2], b"b") == 0
    await group.agree()
    assert [group[broker].log.high_watermark_checkpoint for broker in (0, 1)] == [0, 0]
    assert await produce(group[2], b"c") == 1
    await group.agree()
    for broker in (0, 1):
        group.kill(broker)
        group.start(broker)
    await group.agree()
    assert epochs_of(group[0].log) == epochs_of(group[2].log)


async def test_should_delete_what_its_leader_deletes(group: ReplicaGroup) -> None:
    group.elect(0)
    for _ in range(4):
        await produce(group[0], bytes(SEGMENT_BYTES_MIN), b"x")
    assert await group[0].delete_records(DeleteQuery(Offset(5), Fence())) == 5
    await eventually(lambda: all(group[broker].log.log_start_offset == 5 for broker in (1, 2)), "so do followers")
    await group.agree()


async def test_should_begin_anew_where_its_leader_begins(tmp_path: Path) -> None:
    async with replica_group(tmp_path, (0, 1)) as group:
        group.start(2)
        group.elect(0, isr=(0, 1))
        await produce(group[0], b"a", b"b")
        await group.agree()
        group.cut_off = {2}
        for _ in range(3):
            await produce(group[0], b"c", b"d", b"e")
        await group[0].delete_records(DeleteQuery(Offset(7), Fence()))  # Within a batch.
        group.cut_off.clear()
        await eventually(lambda: group[2].log.log_start_offset == 7, "as at the leader")
        await produce(group[0], b"f")
        await group.agree()
        assert group[2].log.log_end_offset == 12

        group.cut_off = {2}
        await produce(group[0], b"g")
        await group[0].delete_records(DeleteQuery(Edge.LATEST, Fence()))
        group.cut_off.clear()
        await eventually(lambda: group[2].log.log_start_offset == 13, "nothing is left")
        await group.agree()


async def test_should_go_on_once_what_the_last_one_in_sync_has_damaged_is_given_up(tmp_path: Path) -> None:
    """Nobody else has it, so it stays, and nobody can pass it, until people delete the records up to behind it."""
    async with replica_group(tmp_path, (0, 1), segment_bytes=SEGMENT_BYTES_MIN) as group:
        group.elect(0, isr=(0,))
        for _ in range(4):
            await produce(group[0], bytes(SEGMENT_BYTES_MIN), query=LEADER)
        await eventually(lambda: group[1].log.log_end_offset == 4 == group[0].high_watermark, "1 has it all")
        flip_bit(log_files(group[0].log.directory)[1], 8 * 5_000)

        group.start(2)

        await eventually(lambda: bool(group.members[2].streams.errors), "it comes upon that")
        assert group[2].log.log_end_offset <= 1
        assert len(log_files(group[0].log.directory)) == 4, "all of it is kept"
        assert await group[0].delete_records(DeleteQuery(Offset(2), Fence())) == 2
        await group.agree()
        assert [group[broker].log.log_start_offset for broker in range(3)] == [2, 2, 2]


def numbered(sequence: int, *values: bytes) -> RawBatch:
    records = columns_of([RecordContent(None, value, TIMESTAMP_MS) for value in values or (b"v",)])
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
