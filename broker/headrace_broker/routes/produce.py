"""POST of records, to a partition or to a topic whose partitions the broker chooses.

The body is read whole before anything is appended, so that a client that disconnects mid-upload leaves nothing behind.
"""

import asyncio
import json
from functools import lru_cache
from json.encoder import encode_basestring_ascii as json_string
from typing import Any

from aiohttp import web
from yarl import URL

from headrace.core.types import Acks, LeaderEpoch
from headrace_broker.body_checks import check_all
from headrace_broker.clock import wall_ms
from headrace_broker.partition import Partition
from headrace_broker.proxy import Elsewhere
from headrace_broker.requests import ProduceQuery
from headrace_broker.routes.parameters import parse_place, parse_produce
from headrace_broker.routes.record_bodies import BodyFormat, content_format, parse_batches
from headrace_broker.routes.uploads import Chunks, take_body
from headrace_broker.serving import Serving
from headrace_broker.storage.log_appender import Appended

_REMEMBERED_MAX = 256
_REMEMBERED_CHARACTERS = 200
_ANSWER = '{"partition": %d, "baseOffset": %d, "lastOffset": %d, "leaderEpoch": %d, "topicUid": %s%s}\n'
_RESULT = '{"baseOffset": %d, "lastOffset": %d}'


class ProduceRoute:
    """POST /v1/namespaces/{ns}/topics/{t}/partitions/{p}/records"""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        place, query = parse_place(request.match_info), _query_of(request)
        self._serving.check_not_internal(place.topic)
        body_format = content_format(request.headers.get("Content-Type", ""))
        target = self._serving.locate(place, query.fence)
        with self._serving.body_share(request) as share:
            chunks = await take_body(request, share, self._body_bytes_max(body_format))
            target = self._serving.locate(place, query.fence)
            if isinstance(target, Elsewhere):
                return await self._serving.proxy.forward(request, target, chunks, query.timeout_ms)
            written, epoch = await produce_here(self._serving, target, query, chunks, body_format)
        if query.acks is Acks.NONE:
            return json_answer({}, status=202)
        return _answer(target, written, epoch, body_format)

    def _body_bytes_max(self, body_format: BodyFormat) -> int:
        admission = self._serving.admission
        return admission.body_bytes_max if body_format is BodyFormat.BATCHES else admission.json_body_bytes_max


def _query_of(request: web.Request) -> ProduceQuery:
    """Producers ask for the same again and again."""
    text = request.rel_url.raw_query_string
    return _remembered_query(text) if len(text) <= _REMEMBERED_CHARACTERS else parse_produce(request.query)


@lru_cache(_REMEMBERED_MAX)
def _remembered_query(text: str) -> ProduceQuery:
    return parse_produce(URL.build(query_string=text, encoded=True).query)


async def produce_here(
    serving: Serving, partition: Partition, query: ProduceQuery, chunks: Chunks, body_format: BodyFormat
) -> tuple[Appended, LeaderEpoch]:
    """Check the batches and append them."""
    limit = serving.topic(partition.place.topic, query.fence).spec.max_message_bytes
    if body_format is BodyFormat.BATCHES:
        batches = parse_batches(chunks, body_format, batch_bytes_max=limit, now_ms=wall_ms())
        await check_all(batches, serving.admission)
    else:
        async with serving.admission.converting(sum(map(len, chunks))):
            batches = await asyncio.to_thread(
                parse_batches, chunks, body_format, batch_bytes_max=limit, now_ms=wall_ms()
            )
    return await partition.produce(batches, query)


def _answer(partition: Partition, written: Appended, epoch: LeaderEpoch, body_format: BodyFormat) -> web.Response:
    # Written out: a JSON encoder costs as much as the append.
    body = _ANSWER % (
        partition.place.partition,
        written.first_offset,
        written.last_offset,
        epoch,
        json_string(partition.key.uid),
        _results(written) if body_format is BodyFormat.BATCHES else "",
    )
    return web.Response(body=body.encode(), content_type="application/json")


def _results(written: Appended) -> str:
    each = zip(written.base_offsets, written.last_offsets, strict=True)
    return ', "results": [' + ", ".join([_RESULT % place for place in each]) + "]"


def json_answer(document: dict[str, Any], status: int = 200) -> web.Response:
    """One line: terminals show it whole."""
    return web.Response(status=status, body=json.dumps(document).encode() + b"\n", content_type="application/json")
