"""What coordinators ask leaders for, to know how far groups are behind: `POST /v1/brokers/{id}/watermarks`. Pure.

A broker answers for the partitions that it leads and is sure of; whatever it leaves out is not known.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.core.errors import InvalidRequestError
from headrace.core.fields import Fields
from headrace.core.groups.lag import Watermarks
from headrace.core.limits import TOPIC_PARTITIONS_MAX, WATERMARKS_ASKED_MAX
from headrace.core.types import Offset, PartitionId, PartitionKey, TopicUid


def asked_object(partitions: Iterable[PartitionKey]) -> dict[str, Any]:
    return {"partitions": [_key_object(partition) for partition in partitions]}


def parse_asked(body: object) -> list[PartitionKey]:
    """Raises InvalidRequestError."""
    listed = Fields(body, "the request").objects("partitions")
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
    """Raises InvalidRequestError for what is no such answer."""
    return {
        _key(each): Watermarks(Offset(each.whole("logStartOffset")), Offset(each.whole("highWatermark")))
        for each in Fields(body, "the answer").objects("partitions")
    }


def _key_object(partition: PartitionKey) -> dict[str, Any]:
    return {"topicUid": partition.uid, "partition": partition.partition}


def _key(fields: Fields) -> PartitionKey:
    number = fields.whole("partition")
    if number >= TOPIC_PARTITIONS_MAX:
        raise InvalidRequestError(f"partition is {number}: from 0 to {TOPIC_PARTITIONS_MAX - 1}", field="partition")
    return PartitionKey(TopicUid(fields.text("topicUid")), PartitionId(number))
