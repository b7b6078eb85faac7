"""Sessions with broker processes: who leads, a broker that stops, one that is killed, and many partitions at once."""

import asyncio

import pytest

from headrace.core.errors import BrokerUnreachableError, HeadraceError, NotLeaderError, NotReadyError
from headrace.core.frames.session_messages import Batches, ChannelOpened, Failed, Produce, Produced
from headrace.core.types import Acks
from tests.support.batches import batch_of
from tests.support.cluster import Cluster, Program
from tests.support.sessions import session_at, to_fetch, to_produce

BATCH = batch_of(b"a" * 100)
PLENTY = 1 << 40


async def test_should_name_the_leader_where_another_broker_leads(shared: Cluster, topic: str) -> None:
    shared.create_topic(topic, partitions=2)
    leaders = [shared.leader_url(topic, partition) for partition in (0, 1)]
    assert leaders[0] != leaders[1]
    async with session_at(leaders[0]) as session:
        session.say(to_produce(1, topic, partition=1), Produce(1, 1, [BATCH]), to_fetch(2, topic, partition=1))
        for channel in (1, 2):
            failed = await session.failed(channel)
            assert isinstance(failed.error, NotLeaderError)
            assert failed.error.details["url"] == leaders[1]
    async with session_at(leaders[1]) as session:
        session.say(to_produce(1, topic, partition=1), Produce(1, 1, [BATCH]))
        await session.hear(ChannelOpened)
        assert (await session.hear(Produced)).base_offset == 0


@pytest.mark.parametrize("acks", Acks)
async def test_should_write_and_read_many_partitions_at_once(shared: Cluster, topic: str, acks: Acks) -> None:
    shared.create_topic(topic, partitions=4)
    url = shared.leader_url(topic, 0)
    mine = [partition for partition in range(4) if shared.leader_url(topic, partition) == url]
    async with session_at(url) as session:
        session.say(*(to_produce(n + 1, topic, partition=n, acks=acks) for n in mine))
        session.say(*(to_fetch(n + 11, topic, partition=n, credit=PLENTY) for n in mine))
        session.say(*(Produce(n + 1, sequence, [BATCH, BATCH]) for sequence in range(50) for n in mine))
        answers: dict[int, list[tuple[int, int]]] = {n: [] for n in mine}
        ends = dict.fromkeys(mine, 0)
        while min(ends.values()) < 100 or min(map(len, answers.values())) < 50:
            match await session.next():
                case Produced() as produced:
                    answers[produced.channel - 1].append((produced.sequence, produced.base_offset))
                case Batches() as batches:
                    ends[batches.channel - 11] = batches.next_offset
                case other:
                    assert isinstance(other, ChannelOpened), other
        assert all(each == [(sequence, 2 * sequence) for sequence in range(50)] for each in answers.values())


async def test_should_end_sessions_when_the_broker_stops_and_lose_them_when_it_is_killed(
    cluster: Cluster, topic: str
) -> None:
    cluster.create_topic(topic, partitions=1)
    url = cluster.leader_url(topic, 0)
    broker = cluster.programs["broker-0"]
    async with session_at(url) as session:
        session.say(to_produce(1, topic), to_fetch(2, topic, credit=PLENTY))
        session.say(*(Produce(1, n, [BATCH]) for n in range(200)))
        await session.hear(ChannelOpened)
        stopping = asyncio.create_task(asyncio.to_thread(broker.stop))
        heard = await session.rest()
        failed = {each.channel: each for each in heard if isinstance(each, Failed)}
        assert all(isinstance(each.error, NotReadyError) for each in failed.values())
        assert set(failed) == {1, 2}
        answered = [each.sequence for each in heard if isinstance(each, Produced)]
        assert answered == list(range(len(answered)))
        assert await stopping == 0
    restarted = await asyncio.to_thread(cluster.start_broker)
    await is_lost_with(restarted, cluster, topic, len(answered))
    await asyncio.to_thread(cluster.start_broker)


async def is_lost_with(broker: Program, cluster: Cluster, topic: str, records: int) -> None:
    async with session_at(cluster.leader_url(topic, 0)) as session:
        session.say(to_fetch(1, topic, offset="latest", credit=PLENTY), to_produce(2, topic))
        assert (await session.hear(ChannelOpened)).standing.offset == records
        await session.hear(ChannelOpened)
        broker.kill()
        with pytest.raises(HeadraceError) as lost:
            await session.next()
        assert isinstance(lost.value, BrokerUnreachableError)
