"""A query is read strictly: what it says is typed, what is wrong with it is named."""

from collections.abc import Callable

import pytest
from multidict import MultiDict

from headrace.core.errors import InvalidRequestError
from headrace.core.groups.identity import GroupName
from headrace.core.limits import FETCH_BYTES_DEFAULT, FETCH_BYTES_MAX, FETCH_RECORDS_MAX
from headrace.core.log.epochs import Fence
from headrace.core.types import Acks, LeaderEpoch, Offset, PartitionId, TopicName, TopicUid
from headrace_broker.http.parameters import (
    parse_delete,
    parse_fetch,
    parse_group,
    parse_no_query,
    parse_offsets,
    parse_place,
    parse_produce,
    parse_spread,
)
from headrace_broker.partition.queries import (
    DeleteQuery,
    Edge,
    FetchQuery,
    OffsetsQuery,
    Place,
    ProduceQuery,
    ValueFormat,
    WatchQuery,
)

PATH = {"namespace": "default", "topic": "flights", "partition": "3"}


def test_should_take_what_may_name_a_group_and_nothing_else() -> None:
    assert parse_group({"namespace": "lab", "group": "billing"}) == GroupName("lab", "billing")
    for field, path in (
        ("namespace", {"namespace": "The_Lab", "group": "billing"}),
        ("group", {"namespace": "lab", "group": "b" * 64}),
    ):
        with pytest.raises(InvalidRequestError, match=f"cannot name a {field}") as refusal:
            parse_group(path)
        assert refusal.value.details["field"] == field


def test_should_take_defaults_when_nothing_is_said() -> None:
    assert parse_produce(MultiDict()) == ProduceQuery(Acks.ALL, 30_000, Fence())
    assert parse_spread(MultiDict()) == ProduceQuery(Acks.ALL, 30_000, Fence())
    assert parse_offsets(MultiDict()) == OffsetsQuery(Edge.EARLIEST, Fence())
    assert parse_fetch(MultiDict()) == FetchQuery(
        Edge.EARLIEST, FETCH_BYTES_DEFAULT, FETCH_RECORDS_MAX, 1, 0, Fence(), ValueFormat.TEXT
    )


def test_should_read_what_is_said() -> None:
    fence = Fence(TopicUid("u1"), LeaderEpoch(4))
    assert parse_produce(MultiDict(acks="1", timeoutMs="5", topicUid="u1", leaderEpoch="4")) == ProduceQuery(
        Acks.LEADER, 5, fence
    )
    assert parse_fetch(
        MultiDict(
            offset="7", maxBytes="10", maxRecords="2", minBytes="99", maxWaitMs="3", valueFormat="json", watch="false"
        )
    ) == FetchQuery(Offset(7), 10, 2, 10, 3, Fence(), ValueFormat.JSON)
    assert parse_fetch(
        MultiDict(watch="true", offset="latest", maxBytes="9", maxRecords="2", topicUid="u1", leaderEpoch="4")
    ) == WatchQuery(Edge.LATEST, 9, 2, fence, ValueFormat.TEXT)
    assert parse_fetch(MultiDict(watch="true")) == WatchQuery(
        Edge.EARLIEST, FETCH_BYTES_DEFAULT, None, Fence(), ValueFormat.TEXT
    )
    assert parse_offsets(MultiDict(timestamp="1700000000000")).timestamp == 1_700_000_000_000
    assert parse_offsets(MultiDict(timestamp="latest")).timestamp is Edge.LATEST
    assert parse_delete(MultiDict(beforeOffset="12", topicUid="u1", leaderEpoch="4")) == DeleteQuery(Offset(12), fence)
    assert parse_delete(MultiDict(beforeOffset="latest")).before is Edge.LATEST
    assert parse_place(PATH) == Place(TopicName("default", "flights"), PartitionId(3))
    assert str(parse_place(PATH)) == "default/flights/3"


@pytest.mark.parametrize(
    ("parse", "query", "field", "rule"),
    [
        (parse_produce, {"acks": "2"}, "acks", "acks '2': must be one of 0, 1, all"),
        (parse_produce, {"timeoutMs": "0"}, "timeoutMs", "timeoutMs '0': must be a whole number from 1 to 300000"),
        (parse_produce, {"leaderEpoch": "-1"}, "leaderEpoch", "must be a whole number from 0 to"),
        (parse_spread, {"leaderEpoch": "1"}, "leaderEpoch", "it takes acks, timeoutMs, topicUid"),
        (parse_fetch, {"offset": "-1"}, "offset", "must be a whole number from 0 to 9223372036854775807, earliest or"),
        (parse_fetch, {"offset": "9223372036854775808"}, "offset", "9223372036854775808"),
        (parse_fetch, {"offset": "9" * 5000}, "offset", "must be a whole number"),
        (parse_fetch, {"offset": "١"}, "offset", "must be a whole number"),
        (parse_fetch, {"maxBytes": str(FETCH_BYTES_MAX + 1)}, "maxBytes", f"from 1 to {FETCH_BYTES_MAX}"),
        (parse_fetch, {"maxWait": "3"}, "maxWait", "maxWait: this path takes no such query parameter; it takes watch"),
        (parse_fetch, {"valueFormat": "xml"}, "valueFormat", "must be one of text, json"),
        (parse_fetch, {"watch": "yes"}, "watch", "watch 'yes': must be one of false, true"),
        (parse_fetch, {"watch": "true", "minBytes": "1"}, "minBytes", "minBytes: not with watch=true"),
        (parse_fetch, {"watch": "true", "maxWaitMs": "0"}, "maxWaitMs", "maxWaitMs: not with watch=true"),
        (parse_fetch, {"watch": "true", "maxRecords": "0"}, "maxRecords", "from 1 to"),
        (parse_offsets, {"timestamp": "yesterday"}, "timestamp", "timestamp 'yesterday'"),
        (parse_delete, {}, "beforeOffset", "beforeOffset: must be given"),
        (parse_delete, {"beforeOffset": "earliest"}, "beforeOffset", "beforeOffset 'earliest': must be a whole number"),
        (parse_delete, {"beforeOffset": "-1"}, "beforeOffset", "from 0 to 9223372036854775807, or latest"),
        (parse_delete, {"beforeOffset": "1", "offset": "1"}, "offset", "it takes beforeOffset, topicUid, leaderEpoch"),
        (parse_no_query, {"pretty": "1"}, "pretty", "it takes none"),
    ],
)
def test_should_name_field_value_and_rule_when_a_parameter_is_wrong(
    parse: Callable[[MultiDict[str]], object], query: dict[str, str], field: str, rule: str
) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        parse(MultiDict(query))
    assert refused.value.details["field"] == field
    assert rule in refused.value.message


def test_should_refuse_a_parameter_that_is_given_twice() -> None:
    with pytest.raises(InvalidRequestError, match="offset: given 2 times"):
        parse_fetch(MultiDict([("offset", "1"), ("offset", "2")]))


@pytest.mark.parametrize("partition", ["x", "-1", "1024", "", "0x1"])
def test_should_refuse_a_partition_that_cannot_exist(partition: str) -> None:
    with pytest.raises(InvalidRequestError, match="must be a whole number from 0 to 1023"):
        parse_place({**PATH, "partition": partition})
