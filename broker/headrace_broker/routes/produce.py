"""POST of records, to a partition or to a topic whose partitions the broker chooses.

The body is read whole before anything is appended, so that a client that disconnects mid-upload leaves nothing behind.
"""

import asyncio
import json
from typing import Any

from aiohttp import web

from headrace.core.replication.events import Acks
from headrace.core.types import LeaderEpoch
from headrace_broker.clock import wall_ms
from headrace_broker.partition import Partition
from headrace_broker.proxy import Elsewhere
from headrace_broker.requests import ProduceQuery
from headrace_broker.routes.parameters import parse_place, parse_produce
from headrace_broker.routes.record_bodies import BodyFormat, content_format, parse_batches
from headrace_broker.routes.uploads import Chunks, body_of
from headrace_broker.serving import Serving
from headrace_broker.storage.partition_log import Appended


class ProduceRoute:
    """POST /v1/namespaces/{ns}/topics/{t}/partitions/{p}/records"""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        place, query = parse_place(request.match_info), parse_produce(request.query)
        body_format = content_format(request.headers.get("Content-Type", ""))
        self._serving.locate(place, query.fence)
        async with body_of(request, self._serving) as chunks:
            target = self._serving.locate(place, query.fence)
            if isinstance(target, Elsewhere):
                return await self._serving.proxy.forward(request, target, chunks, query.timeout_ms)
            written, epoch = await produce_here(self._serving, target, query, chunks, body_format)
        if query.acks is Acks.NONE:
            return json_answer({}, status=202)
        return json_answer(_answer(target, written, epoch, body_format))


async def produce_here(
    serving: Serving, partition: Partition, query: ProduceQuery, chunks: Chunks, body_format: BodyFormat
) -> tuple[Appended, LeaderEpoch]:
    """Check the batches and append them."""
    limit = serving.topic(partition.place.topic, query.fence).spec.max_message_bytes
    if body_format is BodyFormat.BATCHES:
        batches = parse_batches(chunks, body_format, batch_bytes_max=limit, now_ms=wall_ms())
    else:
        batches = await asyncio.to_thread(parse_batches, chunks, body_format, batch_bytes_max=limit, now_ms=wall_ms())
    return await partition.produce(batches, query)


def _answer(partition: Partition, written: Appended, epoch: LeaderEpoch, body_format: BodyFormat) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "partition": partition.place.partition,
        "baseOffset": written.first_offset,
        "lastOffset": written.last_offset,
        "leaderEpoch": epoch,
        "topicUid": partition.key.uid,
    }
    if body_format is BodyFormat.BATCHES:
        following = [*written.base_offsets[1:], written.last_offset + 1]
        answer["results"] = [
            {"baseOffset": base, "lastOffset": after - 1}
            for base, after in zip(written.base_offsets, following, strict=True)
        ]
    return answer


def json_answer(document: dict[str, Any], status: int = 200) -> web.Response:
    """One line: terminals show it whole."""
    return web.Response(status=status, body=json.dumps(document).encode() + b"\n", content_type="application/json")
