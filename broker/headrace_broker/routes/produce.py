"""POST of records, to a partition or to a topic whose partitions the broker chooses.

The body is read whole before anything is appended, so that a client that disconnects mid-upload leaves nothing behind.
"""

import asyncio
import json
from collections.abc import Iterable
from functools import lru_cache, partial
from json.encoder import encode_basestring_ascii as json_string
from typing import Any

from aiohttp import web
from yarl import URL

from headrace.core.errors import BrokersOnlyError
from headrace.core.records.raw import RawBatch
from headrace.core.records.time_rules import Strange
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
        if query.is_committed and not self._serving.is_broker(request):
            raise BrokersOnlyError("committed is for brokers, which bring staged records to their topic: leave it out")
        body_format = content_format(request.headers.get("Content-Type", ""))
        self._serving.check_writable(place.topic, stages=body_format is BodyFormat.BATCHES)
        target = self._serving.locate(place, query.fence)
        with self._serving.body_share(request) as share:
            chunks = await take_body(request, share, self._body_bytes_max(body_format))
            target = self._serving.locate(place, query.fence)
            if isinstance(target, Elsewhere):
                return await self._serving.proxy.forward(request, target, chunks, query.timeout_ms)
            return await self._produce(target, query, chunks, body_format)

    async def _produce(
        self, partition: Partition, query: ProduceQuery, chunks: Chunks, body_format: BodyFormat
    ) -> web.Response:
        batches = await self._batches(partition, query, chunks, body_format)
        warnings = warnings_of(partition.times.strange(batches, wall_ms()))
        written, epoch = await partition.produce(batches, query)
        if query.acks is Acks.NONE:
            return json_answer(warnings, status=202)
        more = ", " + json.dumps(warnings)[1:-1] if warnings else ""
        return _answer(partition, written, epoch, (_results(written) if _is_binary(body_format) else "") + more)

    async def _batches(
        self, partition: Partition, query: ProduceQuery, chunks: Chunks, body_format: BodyFormat
    ) -> list[RawBatch]:
        """Those of the body, checked."""
        limit = self._serving.topic(partition.place.topic, query.fence).spec.max_message_bytes
        parse = partial(
            parse_batches,
            chunks,
            body_format,
            batch_bytes_max=limit,
            now_ms=wall_ms(),
            are_committed=query.is_committed,
        )
        if _is_binary(body_format):
            batches = parse()
            if not query.is_committed:  # Staged ones were looked into when they were staged.
                await check_all(batches, self._serving.admission)
            return batches
        async with self._serving.admission.converting(sum(map(len, chunks))):
            return await asyncio.to_thread(parse)

    def _body_bytes_max(self, body_format: BodyFormat) -> int:
        admission = self._serving.admission
        return admission.body_bytes_max if _is_binary(body_format) else admission.json_body_bytes_max


def _is_binary(body_format: BodyFormat) -> bool:
    return body_format is BodyFormat.BATCHES


def _query_of(request: web.Request) -> ProduceQuery:
    """Producers ask for the same again and again."""
    text = request.rel_url.raw_query_string
    return _remembered_query(text) if len(text) <= _REMEMBERED_CHARACTERS else parse_produce(request.query)


@lru_cache(_REMEMBERED_MAX)
def _remembered_query(text: str) -> ProduceQuery:
    return parse_produce(URL.build(query_string=text, encoded=True).query)


def _answer(partition: Partition, written: Appended, epoch: LeaderEpoch, more: str) -> web.Response:
    # Written out: a JSON encoder costs as much as the append.
    body = _ANSWER % (
        partition.place.partition,
        written.first_offset,
        written.last_offset,
        epoch,
        json_string(partition.key.uid),
        more,
    )
    return web.Response(body=body.encode(), content_type="application/json")


def _results(written: Appended) -> str:
    each = zip(written.base_offsets, written.last_offsets, strict=True)
    return ', "results": [' + ", ".join([_RESULT % place for place in each]) + "]"


def warnings_of(strange: Iterable[tuple[Strange, str]]) -> dict[str, Any]:
    """The member of an answer that tells of them; none where there are none."""
    told = [{"reason": reason.value, "records": records, "message": said} for (reason, records), said in strange]
    return {"warnings": told} if told else {}


def json_answer(document: dict[str, Any], status: int = 200) -> web.Response:
    """One line: terminals show it whole."""
    return web.Response(status=status, body=json.dumps(document).encode() + b"\n", content_type="application/json")
