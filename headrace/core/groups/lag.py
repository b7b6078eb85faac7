"""The lag of a group: readable records that it has not committed, topic by topic, and the watermarks that it needs.

A partition without an offset of the group counts from its log's start, and so does one whose offset fell below it:
deleted records can never be read. An offset above the high watermark is not behind. If the watermarks of a single
partition are not known, the lag of its topic is not known either: a sum of the rest would seem to be progress.

Coordinators ask leaders with `POST /v1/brokers/{id}/watermarks`. A broker answers for the partitions that it leads and
is sure of; a partition that it leaves out is not known. Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from headrace.core.errors import InvalidRequestError
from headrace.core.fields import BodyFields
from headrace.core.groups.assignment import partitions_of
from headrace.core.groups.entries import Image
from headrace.core.groups.identity import TopicShape
from headrace.core.limits import TOPIC_PARTITIONS_MAX, WATERMARKS_ASKED_MAX
from headrace.core.types import Offset, PartitionId, PartitionKey, TopicUid


class Watermarks(NamedTuple):
    log_start: Offset
    high: Offset
    """The first offset that cannot be read yet."""


def partition_lag(image: Image, partition: PartitionKey, watermarks: Watermarks | None) -> int | None:
    """Return the lag; None: not known, as the watermarks are not."""
    if watermarks is None:
        return None
    committed = image.offsets.get(partition)
    return records_behind(None if committed is None else committed.offset, watermarks)


def records_behind(committed: Offset | None, watermarks: Watermarks) -> int:
    begins = watermarks.log_start if committed is None else max(committed, watermarks.log_start)
    return max(0, watermarks.high - begins)


def topic_lag(shape: TopicShape, behind: Mapping[PartitionKey, int | None]) -> int | None:
    """Return the lag of a topic; `behind` has each of its partitions."""
    lags = [behind[partition] for partition in partitions_of(shape)]
    known = [lag for lag in lags if lag is not None]
    return sum(known) if len(known) == len(lags) else None


def watermarks_request_object(partitions: Iterable[PartitionKey]) -> dict[str, Any]:
    return {"partitions": [_key_object(partition) for partition in partitions]}


def parse_watermarks_request(body: object) -> list[PartitionKey]:
    """Parse a request. Raises InvalidRequestError."""
    listed = BodyFields(body, "the request").objects("partitions")
    if len(listed) > WATERMARKS_ASKED_MAX:
        raise InvalidRequestError(
            f"partitions has {len(listed)} entries: at most {WATERMARKS_ASKED_MAX}; ask in several requests",
            field="partitions",
        )
    return [_key(each) for each in listed]


def watermarks_object(found: Mapping[PartitionKey, Watermarks]) -> dict[str, Any]:
    return {
        "partitions": [
            {**_key_object(partition), "logStartOffset": each.log_start, "highWatermark": each.high}
            for partition, each in sorted(found.items())
        ]
    }


def parse_watermarks(body: object) -> dict[PartitionKey, Watermarks]:
    """Parse an answer. Raises InvalidRequestError for what is no such answer."""
    return {
        _key(each): Watermarks(Offset(each.whole("logStartOffset")), Offset(each.whole("highWatermark")))
        for each in BodyFields(body, "the answer").objects("partitions")
    }


def _key_object(partition: PartitionKey) -> dict[str, Any]:
    return {"topicUid": partition.uid, "partition": partition.partition}


def _key(fields: BodyFields) -> PartitionKey:
    number = fields.whole("partition")
    if number >= TOPIC_PARTITIONS_MAX:
        raise InvalidRequestError(f"partition is {number}: from 0 to {TOPIC_PARTITIONS_MAX - 1}", field="partition")
    return PartitionKey(TopicUid(fields.text("topicUid")), PartitionId(number))
