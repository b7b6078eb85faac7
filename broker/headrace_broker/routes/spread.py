"""POST of JSON records to a topic: the broker chooses a partition for each, by its key or in turn.

Each partition's share is one append, here or at its leader, all at the same time. There is no atomicity over
partitions: where some shares fail, the problem document says which records are written (`results`, null where they are
not).
"""

import asyncio
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from aiohttp import web

from headrace.core.errors import HeadraceError, InvalidRequestError
from headrace.core.murmur2 import partition_for_key
from headrace.core.records.arrow_message import times_in
from headrace.core.records.raw import split_batches
from headrace.core.records.time_rules import Strange, TimeRules
from headrace.core.resources.topic import Topic
from headrace.core.types import Acks, Offset, PartitionId, Record
from headrace_broker.clock import wall_ms
from headrace_broker.proxy import Elsewhere
from headrace_broker.remote import produce_there
from headrace_broker.requests import Place, ProduceQuery
from headrace_broker.routes.parameters import parse_spread, parse_topic
from headrace_broker.routes.produce import json_answer, warnings_of
from headrace_broker.routes.record_bodies import BodyFormat, content_format, encode_records, parse_records
from headrace_broker.routes.uploads import take_body
from headrace_broker.serving import Serving


@dataclass(frozen=True, slots=True)
class _Share:
    """The records of one request that go to one partition, and where they stand in the request."""

    place: Place
    indexes: list[int]
    records: list[Record]


class SpreadRoute:
    """POST /v1/namespaces/{ns}/topics/{t}/records"""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
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
        self._serving.check_writable(name)
        self._serving.topic(name, query.fence)
        with self._serving.body_share(request) as share:
            admission = self._serving.admission
            chunks = await take_body(request, share, admission.json_body_bytes_max)
            async with admission.converting(share.taken):
                records = await asyncio.to_thread(parse_records, chunks, body_format, wall_ms())
                topic = self._serving.topic(name, query.fence)
                strange = _check_times(topic, records)
                shares = self._shares(topic, records)
                client = self._serving.client_address(request)
                outcomes = await asyncio.gather(*(self._produce(topic, share, query, client) for share in shares))
        return _answer(query, shares, outcomes, strange)

    def _shares(self, topic: Topic, records: Sequence[Record]) -> list[_Share]:
        partitions = topic.spec.partitions
        shares: dict[PartitionId, _Share] = {}
        for index, record in enumerate(records):
            if record.key is None:
                partition = PartitionId(next(self._turn) % partitions)
            else:
                partition = partition_for_key(record.key, partitions)
            share = shares.setdefault(partition, _Share(Place(topic.full_name, partition), [], []))
            share.indexes.append(index)
            share.records.append(record)
        return list(shares.values())

    async def _produce(self, topic: Topic, share: _Share, query: ProduceQuery, client: str) -> Offset | HeadraceError:
        """Offset of the first record of the share, or why it is not written."""
        limit = topic.spec.max_message_bytes
        try:
            body = await asyncio.to_thread(encode_records, share.records, limit)
            target = self._serving.locate(share.place, query.fence)
            if isinstance(target, Elsewhere):
                return await produce_there(self._serving.proxy, target, query, body, client)
            written, _ = await target.produce(split_batches(body, batch_bytes_max=limit), query)
        except HeadraceError as error:
            return error
        return written.first_offset


def _check_times(topic: Topic, records: Sequence[Record]) -> list[tuple[Strange, str]]:
    """Before a share is written: leaders would refuse theirs alone. What the writer should know of the others.

    Raises InvalidTimestampError.
    """
    rules = TimeRules.of_topic(topic.spec)
    if rules is None or not records:
        return []
    times, now_ms = times_in(memoryview(array("q", [record.timestamp_ms for record in records]))), wall_ms()
    rules.check_times(times, now_ms, str(topic.full_name))
    return [(each, each.told(rules.retention_ms)) for each in rules.strange([times], now_ms)]


def _answer(
    query: ProduceQuery,
    shares: Sequence[_Share],
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
