"""POST of records, to a partition or to a topic whose partitions the broker chooses; DELETE of records.

The body is read whole before anything is appended, so that a client that disconnects mid-upload leaves nothing behind.

JSON records that are sent to a topic are spread: the broker chooses a partition for each, by its key or in turn. Each
partition's share is one append, here or at its leader, all at the same time. There is no atomicity over partitions: if
some shares fail, the problem document says which records are written (`results`, null for those that are not).

Records are deleted from the front of a partition, as far as they are committed.
"""

import asyncio
import json
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import count
from json.encoder import encode_basestring_ascii as json_string
from typing import Any

from aiohttp import web
from yarl import URL

from headrace.core.errors import BrokersOnlyError, HeadraceError, InvalidRequestError
from headrace.core.limits import DELETE_TIMEOUT_MS
from headrace.core.murmur2 import partition_for_key
from headrace.core.records.arrow_message import times_in
from headrace.core.records.raw import RawBatch, split_batches
from headrace.core.records.time_rules import Strange, TimeRules
from headrace.core.resources.internal_topics import InternalTopics
from headrace.core.resources.topic import Topic
from headrace.core.types import Acks, LeaderEpoch, Offset, PartitionId, RecordContent
from headrace_broker.admission import Admission
from headrace_broker.clock import wall_ms
from headrace_broker.cluster.locator import Elsewhere, Locator
from headrace_broker.http.callers import Callers
from headrace_broker.http.json_bodies import json_answer
from headrace_broker.http.parameters import parse_delete, parse_place, parse_produce, parse_spread, parse_topic
from headrace_broker.http.proxy import Proxy, produce_there
from headrace_broker.http.record_bodies import BodyFormat, content_format, encode_records, parse_batches, parse_records
from headrace_broker.http.uploads import Chunks, take_body
from headrace_broker.partition.partition import Partition
from headrace_broker.partition.queries import Place, ProduceQuery
from headrace_broker.partition.record_checks import check_batches
from headrace_broker.storage.log_appender import AppendedBatches

_REMEMBERED_MAX = 256
_REMEMBERED_CHARACTERS = 200
_ANSWER = '{"partition": %d, "baseOffset": %d, "lastOffset": %d, "leaderEpoch": %d, "topicUid": %s%s}\n'
_RESULT = '{"baseOffset": %d, "lastOffset": %d}'


class ProduceRoute:
    """POST /v1/namespaces/{ns}/topics/{t}/partitions/{p}/records"""

    def __init__(
        self, callers: Callers, internal: InternalTopics, locator: Locator, admission: Admission, proxy: Proxy
    ) -> None:
        self._callers = callers
        self._internal = internal
        self._locator = locator
        self._admission = admission
        self._proxy = proxy

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        place, query = parse_place(request.match_info), _query_of(request)
        if query.is_committed and not self._callers.is_broker(request):
            raise BrokersOnlyError("committed is for brokers, which bring staged records to their topic: leave it out")
        body_format = content_format(request.headers.get("Content-Type", ""))
        self._internal.check_writable(place.topic, stages=body_format is BodyFormat.BATCHES)
        target = self._locator.locate(place, query.fence)
        with self._callers.body_share(request) as share:
            chunks = await take_body(request, share, self._body_bytes_max(body_format))
            target = self._locator.locate(place, query.fence)
            if isinstance(target, Elsewhere):
                return await self._proxy.forward(request, target, chunks, query.timeout_ms)
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
        """Return the batches of the body, checked."""
        limit = self._locator.topic(partition.place.topic, query.fence).spec.max_message_bytes
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
            if not query.is_committed:  # Staged batches were checked when they were staged.
                await check_batches(batches, self._admission)
            return batches
        async with self._admission.converting(sum(map(len, chunks))):
            return await asyncio.to_thread(parse)

    def _body_bytes_max(self, body_format: BodyFormat) -> int:
        return self._admission.body_bytes_max if _is_binary(body_format) else self._admission.json_body_bytes_max


def _is_binary(body_format: BodyFormat) -> bool:
    return body_format is BodyFormat.BATCHES


def _query_of(request: web.Request) -> ProduceQuery:
    """Return the parsed query: producers send the same one again and again."""
    text = request.rel_url.raw_query_string
    return _remembered_query(text) if len(text) <= _REMEMBERED_CHARACTERS else parse_produce(request.query)


@lru_cache(_REMEMBERED_MAX)
def _remembered_query(text: str) -> ProduceQuery:
    return parse_produce(URL.build(query_string=text, encoded=True).query)


def _answer(partition: Partition, written: AppendedBatches, epoch: LeaderEpoch, more: str) -> web.Response:
    # This is written out: a JSON encoder costs as much as the append.
    body = _ANSWER % (
        partition.place.partition,
        written.first_offset,
        written.last_offset,
        epoch,
        json_string(partition.key.uid),
        more,
    )
    return web.Response(body=body.encode(), content_type="application/json")


def _results(written: AppendedBatches) -> str:
    each = zip(written.base_offsets, written.last_offsets, strict=True)
    return ', "results": [' + ", ".join([_RESULT % place for place in each]) + "]"


def warnings_of(strange: Iterable[tuple[Strange, str]]) -> dict[str, Any]:
    """Return the member of an answer that warns of these records; empty where there are none."""
    told = [{"reason": reason.value, "records": records, "message": said} for (reason, records), said in strange]
    return {"warnings": told} if told else {}


@dataclass(frozen=True, slots=True)
class _PartitionShare:
    """The records of one request that go to one partition, and where they stand in the request."""

    place: Place
    indexes: list[int]
    records: list[RecordContent]


class SpreadRoute:
    """POST /v1/namespaces/{ns}/topics/{t}/records"""

    def __init__(
        self, callers: Callers, internal: InternalTopics, locator: Locator, admission: Admission, proxy: Proxy
    ) -> None:
        self._callers = callers
        self._internal = internal
        self._locator = locator
        self._admission = admission
        self._proxy = proxy
        self._turn = count()

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        name, query = parse_topic(request.match_info), parse_spread(request.query)
        body_format = content_format(request.headers.get("Content-Type", ""))
        if body_format is BodyFormat.BATCHES:
            raise InvalidRequestError(
                f"Content-Type {body_format.value!r}: a batch goes to one partition; POST it to"
                f" {request.path.removesuffix('/records')}/partitions/<partition>/records",
                field="Content-Type",
            )
        self._internal.check_writable(name)
        self._locator.topic(name, query.fence)
        with self._callers.body_share(request) as share:
            chunks = await take_body(request, share, self._admission.json_body_bytes_max)
            async with self._admission.converting(share.taken):
                records = await asyncio.to_thread(parse_records, chunks, body_format, wall_ms())
                topic = self._locator.topic(name, query.fence)
                strange = _check_times(topic, records)
                shares = self._shares(topic, records)
                client = self._callers.address(request)
                outcomes = await asyncio.gather(*(self._produce(topic, share, query, client) for share in shares))
        return _spread_answer(query, shares, outcomes, strange)

    def _shares(self, topic: Topic, records: Sequence[RecordContent]) -> list[_PartitionShare]:
        partitions = topic.spec.partitions
        shares: dict[PartitionId, _PartitionShare] = {}
        for index, record in enumerate(records):
            if record.key is None:
                partition = PartitionId(next(self._turn) % partitions)
            else:
                partition = partition_for_key(record.key, partitions)
            share = shares.setdefault(partition, _PartitionShare(Place(topic.full_name, partition), [], []))
            share.indexes.append(index)
            share.records.append(record)
        return list(shares.values())

    async def _produce(
        self, topic: Topic, share: _PartitionShare, query: ProduceQuery, client: str
    ) -> Offset | HeadraceError:
        """Return the offset of the first record of the share, or the error why it is not written."""
        limit = topic.spec.max_message_bytes
        try:
            body = await asyncio.to_thread(encode_records, share.records, limit)
            target = self._locator.locate(share.place, query.fence)
            if isinstance(target, Elsewhere):
                return await produce_there(self._proxy, target, query, body, client)
            written, _ = await target.produce(split_batches(body, batch_bytes_max=limit), query)
        except HeadraceError as error:
            return error
        return written.first_offset


def _check_times(topic: Topic, records: Sequence[RecordContent]) -> list[tuple[Strange, str]]:
    """Check the times before a share is written, and return what the writer should know of them.

    Leaders would refuse their shares alone.

    Raises InvalidTimestampError.
    """
    rules = TimeRules.of_topic(topic.spec)
    if rules is None or not records:
        return []
    times, now_ms = times_in(memoryview(array("q", [record.timestamp_ms for record in records]))), wall_ms()
    rules.check_times(times, now_ms, str(topic.full_name))
    return [(each, each.warning(rules.retention_ms)) for each in rules.strange([times], now_ms)]


def _spread_answer(
    query: ProduceQuery,
    shares: Sequence[_PartitionShare],
    outcomes: Sequence[Offset | HeadraceError],
    strange: Sequence[tuple[Strange, str]],
) -> web.Response:
    results: list[dict[str, int] | None] = [None] * sum(len(share.indexes) for share in shares)
    failures = []
    for share, outcome in zip(shares, outcomes, strict=True):
        if isinstance(outcome, HeadraceError):
            failures.append(outcome)
            continue
        for delta, index in enumerate(share.indexes):
            results[index] = {"partition": share.place.partition, "offset": outcome + delta}
    if failures:
        first = failures[0]
        raise type(first)(first.message, **{**first.details, "results": results})
    if query.acks is Acks.NONE:
        return json_answer(warnings_of(strange), status=202)
    return json_answer({"results": results, **warnings_of(strange)})


class DeleteRoute:
    """DELETE /v1/namespaces/{ns}/topics/{t}/partitions/{p}/records"""

    def __init__(self, callers: Callers, internal: InternalTopics, locator: Locator, proxy: Proxy) -> None:
        self._callers = callers
        self._internal = internal
        self._locator = locator
        self._proxy = proxy

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        place, query = parse_place(request.match_info), parse_delete(request.query)
        self._internal.check_deletable(place.topic, by_broker=self._callers.is_broker(request))
        target = self._locator.locate(place, query.fence)
        if isinstance(target, Elsewhere):
            return await self._proxy.forward(request, target, (), DELETE_TIMEOUT_MS)
        answer = {"partition": place.partition, "logStartOffset": await target.delete_records(query)}
        return json_answer(answer)
