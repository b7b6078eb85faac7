"""Partitions that a writers' coordinator reads, writes and cleans: led here, or by another broker. Holds nothing."""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from headrace.core.limits import PRODUCE_TIMEOUT_MS_DEFAULT
from headrace.core.log.epochs import Fence
from headrace.core.records.raw import RawBatch
from headrace.core.staging.decisions import Span
from headrace.core.types import Acks, Offset, PartitionId, TopicName, TopicUid
from headrace_broker.fetch import find_offset
from headrace_broker.partition import Partition
from headrace_broker.proxy import Elsewhere, Proxy
from headrace_broker.remote import delete_there, edge_there, fetch_there, produce_there
from headrace_broker.requests import DeleteQuery, Edge, OffsetsQuery, Place, ProduceQuery

Locate = Callable[[Place, Fence], Partition | Elsewhere]


class Reach:
    """Each call raises what the partition's leader says, and what `locate` raises."""

    def __init__(self, locate: Locate, proxy: Proxy) -> None:
        self._locate = locate
        self._proxy = proxy

    async def spans(
        self, topic: TopicName, uid: TopicUid, partitions: Iterable[PartitionId]
    ) -> dict[PartitionId, Span]:
        """What each of these holds that is committed."""
        numbers, fence = [*partitions], Fence(topic_uid=uid)
        spans = await asyncio.gather(*(self._span(Place(topic, number), fence) for number in numbers))
        return dict(zip(numbers, spans, strict=True))

    async def read(self, place: Place, uid: TopicUid, offset: Offset) -> memoryview:
        """Whole batches, from the one that begins at `offset`."""
        fence = Fence(topic_uid=uid)
        target = self._locate(place, fence)
        if isinstance(target, Elsewhere):
            return await fetch_there(self._proxy, target, offset, 1, fence)
        buffers = await target.log.read(offset, max_bytes=1, up_to=target.high_watermark)
        return buffers[0] if buffers else memoryview(b"")

    async def produce(self, place: Place, uid: TopicUid, batches: Sequence[RawBatch]) -> None:
        """Acknowledged by all that must have them, those that were there before included.

        They are committed: whatever bounds the topic sets by now, they are taken.
        """
        fence = Fence(topic_uid=uid)
        query = ProduceQuery(Acks.ALL, PRODUCE_TIMEOUT_MS_DEFAULT, fence, is_committed=True)
        target = self._locate(place, fence)
        if isinstance(target, Elsewhere):
            body = [buffer for batch in batches for buffer in batch.buffers]
            await produce_there(self._proxy, target, query, body)
        else:
            await target.produce([*batches], query)

    async def delete_before(self, place: Place, uid: TopicUid, before: Offset) -> None:
        fence = Fence(topic_uid=uid)
        target = self._locate(place, fence)
        if isinstance(target, Elsewhere):
            await delete_there(self._proxy, target, before, fence)
        else:
            await target.delete_records(DeleteQuery(before, fence))

    async def _span(self, place: Place, fence: Fence) -> Span:
        return Span(await self._edge(place, Edge.EARLIEST, fence), await self._edge(place, Edge.LATEST, fence))

    async def _edge(self, place: Place, edge: Edge, fence: Fence) -> Offset:
        target = self._locate(place, fence)
        if isinstance(target, Elsewhere):
            return await edge_there(self._proxy, target, edge, fence)
        found = await find_offset(target, OffsetsQuery(edge, fence))
        assert found.offset is not None, "both ends are known, or an error is raised"
        return found.offset
