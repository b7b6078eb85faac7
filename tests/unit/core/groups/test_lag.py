"""What coordinators ask leaders for, and what leaders answer, is the same on both sides; anything else is refused."""

import json

import pytest

from headrace.core.errors import InvalidRequestError
from headrace.core.groups.lag import (
    Watermarks,
    parse_watermarks,
    parse_watermarks_request,
    watermarks_object,
    watermarks_request_object,
)
from headrace.core.limits import TOPIC_PARTITIONS_MAX, WATERMARKS_ASKED_MAX
from headrace.core.types import Offset, PartitionId, PartitionKey, TopicUid
from headrace_broker.http.control import WATERMARKS_BODY_BYTES_MAX
from tests.support.group_world import part


def test_should_read_what_it_writes() -> None:
    asked = [part("flights", 0), part("flights", 3), part("orders", 1)]
    assert parse_watermarks_request(json.loads(json.dumps(watermarks_request_object(asked)))) == asked
    found = {part("flights", 0): Watermarks(Offset(3), Offset(12)), part("orders", 1): Watermarks(Offset(0), Offset(0))}
    assert parse_watermarks(json.loads(json.dumps(watermarks_object(found)))) == found


def test_should_have_room_for_as_many_as_may_be_asked_for() -> None:
    longest = [
        PartitionKey(TopicUid("0f6cdb5e-6a51-4f3e-9c3d-5f8f6a1f7a10"), PartitionId(TOPIC_PARTITIONS_MAX - 1))
    ] * WATERMARKS_ASKED_MAX
    body = watermarks_request_object(longest)
    assert parse_watermarks_request(body) == longest
    assert len(json.dumps(body)) < WATERMARKS_BODY_BYTES_MAX
    with pytest.raises(InvalidRequestError, match="at most 4096; ask in several requests"):
        parse_watermarks_request(watermarks_request_object([*longest, longest[0]]))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (None, "send a JSON object"),
        ({}, "partitions is missing"),
        ({"partitions": [{"partition": 0}]}, "topicUid is missing"),
        ({"partitions": [{"topicUid": "u"}]}, "partition is missing"),
        ({"partitions": [{"topicUid": "u", "partition": TOPIC_PARTITIONS_MAX}]}, "partition is 1024: from 0 to 1023"),
    ],
)
def test_should_refuse_what_is_no_question(body: object, said: str) -> None:
    with pytest.raises(InvalidRequestError, match=said):
        parse_watermarks_request(body)


def test_should_refuse_what_is_no_answer() -> None:
    with pytest.raises(InvalidRequestError, match="highWatermark"):
        parse_watermarks({"partitions": [{"topicUid": "u", "partition": 0, "logStartOffset": 1}]})
