"""Requests and answers of groups are read as they were written, and what is wrong in them is named.

Heartbeats without a wait, for members that would have waited.
"""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import HeadraceError
from headrace.core.groups.assignment import Partitions, Subscription, names_in, partitions_of
from headrace.core.groups.entries import OffsetValue
from headrace.core.groups.events import (
    AbsenceReceived,
    CommitReceived,
    DeletionReceived,
    Done,
    HeartbeatReceived,
    JoinReceived,
    LeaveReceived,
    Membership,
    Offsets,
    OffsetsAsked,
    Request,
    ResetResolved,
)
from headrace.core.groups.identity import GroupEpoch, GroupType
from headrace.core.groups.requests import (
    answer_pause_ms,
    call_of,
    heartbeat_without_waiting,
    parse_commit,
    parse_heartbeat,
    parse_join,
    parse_membership,
    parse_offsets,
    parse_offsets_asked,
    parse_reset,
    reply_object,
)
from headrace.core.groups.status import parse_groups
from headrace.core.log.epochs import NO_EPOCH
from headrace.core.types import LeaderEpoch, Offset, PartitionKey
from tests.support.group_world import GROUP, member, part, parts, shape

TOPICS = {"flights": shape("flights", 4), "orders": shape("orders", 3)}
NAMES = names_in(TOPICS)

keys = st.builds(part, st.sampled_from([*TOPICS]), st.integers(0, 2))
subscriptions = st.builds(Subscription.parse, st.lists(st.sampled_from([*TOPICS]), min_size=1), st.just("x.*"))
epochs = st.integers(0, 1 << 40).map(GroupEpoch)
values = st.builds(
    OffsetValue,
    st.integers(0, (1 << 63) - 1).map(Offset),
    st.just(NO_EPOCH) | st.integers(0, 9).map(LeaderEpoch),
    st.text(max_size=5),
)
offsets = st.dictionaries(keys, values, max_size=4)
joins = st.builds(
    JoinReceived,
    st.just(1),
    st.just(member("m/1")),
    subscriptions,
    st.sampled_from(["", "billing-0"]),
    st.just("::1"),
    st.integers(1_000, 9_000),
)
heartbeats = st.builds(
    HeartbeatReceived,
    st.just(1),
    st.just(member("m/1")),
    epochs,
    st.integers(0, 9),
    st.frozensets(keys),
    st.none() | subscriptions,
    st.sampled_from(["", "billing-0"]),
    st.integers(0, 3_000),
)
commits = st.one_of(
    st.builds(CommitReceived, st.just(1), offsets, type=st.sampled_from(GroupType)),
    st.builds(CommitReceived, st.just(1), offsets, st.just(member("m1")), epochs),
)
resets = st.builds(ResetResolved, st.just(1), st.just("replay-1"), offsets)


def over_http(request: Request) -> Any:
    return json.loads(json.dumps(call_of(GROUP, request, NAMES).body))


@pytest.mark.parametrize("assigned", [parts("flights", 0, 2), frozenset(), None])
def test_should_read_what_it_is_told_to_have(assigned: Partitions | None) -> None:
    membership = Membership(GroupEpoch(7), 3, assigned, 3_000, 45_000)
    read, names = parse_membership(reply_object(membership, NAMES))
    assert (read, names) == (membership, {"uid-flights": "flights"} if assigned else {})


def test_should_read_a_reset_as_it_was_written() -> None:
    reset = ResetResolved(1, "replay-1", {part("flights", 2): OffsetValue(Offset(7))})
    assert parse_reset(over_http(reset), 1, TOPICS) == reset


@given(st.one_of(joins, heartbeats, commits, resets))
def test_should_read_a_request_as_it_was_written(request: Request) -> None:
    body = over_http(request)
    match request:
        case JoinReceived():
            assert parse_join(body, 1, member("m/1"), "::1") == request
        case HeartbeatReceived():
            assert parse_heartbeat(body, 1, member("m/1"), TOPICS) == request
        case CommitReceived():
            assert parse_commit(body, 1, TOPICS, request.type) == request
        case _:
            assert parse_reset(body, 1, TOPICS) == request


@given(st.builds(Membership, epochs, st.integers(0, 9), st.none() | st.frozensets(keys), st.just(1), st.just(2)))
def test_should_read_a_membership_as_it_was_written(membership: Membership) -> None:
    body = json.loads(json.dumps(reply_object(membership, NAMES)))
    read, names = parse_membership(body)
    assert read == membership
    assert names == {uid: NAMES[uid] for uid, _ in membership.assigned or ()}


@given(offsets)
def test_should_read_offsets_as_they_were_written(found: dict[Any, OffsetValue]) -> None:
    body = json.loads(json.dumps(reply_object(Offsets(found), NAMES)))
    read = parse_offsets(body)
    assert {each.partition: each.value for each in read} == found
    assert all(each.topic == NAMES[each.partition.uid] for each in read)


def test_should_show_bodies_as_the_protocol_does() -> None:
    assert reply_object(Done(), {}) == {}
    assert reply_object(Membership(GroupEpoch(7), 3, parts("flights", 1, 0), 3_000, 45_000), NAMES) == {
        "memberEpoch": 7,
        "revision": 3,
        "assignment": [{"topic": "flights", "topicUid": "uid-flights", "partitions": [0, 1]}],
        "heartbeatMs": 3_000,
        "sessionMs": 45_000,
    }
    found = Offsets(
        {part("orders", 1): OffsetValue(Offset(5)), part("gone", 0): OffsetValue(Offset(6), LeaderEpoch(2))}
    )
    assert reply_object(found, NAMES)["offsets"] == [
        {
            "topic": "",
            "topicUid": "uid-gone",
            "partition": 0,
            "offset": 6,
            "leaderEpoch": 2,
            "metadata": "",
            "committedMs": 0,
        },
        {
            "topic": "orders",
            "topicUid": "uid-orders",
            "partition": 1,
            "offset": 5,
            "leaderEpoch": None,
            "metadata": "",
            "committedMs": 0,
        },
    ]


@pytest.mark.parametrize(
    ("request_", "method", "path"),
    [
        (JoinReceived(1, member("m/1"), Subscription(("flights",))), "PUT", "/members/m%2F1"),
        (HeartbeatReceived(1, member("m"), GroupEpoch(1), 0, frozenset()), "POST", "/members/m/heartbeat"),
        (LeaveReceived(1, member("m")), "DELETE", "/members/m"),
        (AbsenceReceived(1, member("m")), "DELETE", "/members/m?away=true"),
        (CommitReceived(1, {}), "POST", "/offsets"),
        (CommitReceived(1, {}, type=GroupType.SPARK), "POST", "/offsets?type=Spark"),
        (OffsetsAsked(1), "GET", "/offsets"),
        (OffsetsAsked(1, parts("orders", 0, 1) | parts("gone", 1)), "GET", "/offsets?topic=orders:0,1"),
        (ResetResolved(1, "a", {}), "POST", "/reset"),
        (DeletionReceived(1), "DELETE", ""),
    ],
)
def test_should_name_the_resource_that_a_request_is_for(request_: Request, method: str, path: str) -> None:
    call = call_of(GROUP, request_, NAMES)
    assert (call.method, call.path) == (method, f"/v1/namespaces/default/groups/billing{path}")
    assert (call.body is None) == (method in ("GET", "DELETE"))


def test_should_take_what_a_person_with_curl_leaves_out() -> None:
    join = parse_join({"topics": ["flights"]}, 1, member("m"), "::1")
    assert join == JoinReceived(1, member("m"), Subscription(("flights",)), client_address="::1")
    said = {"memberEpoch": 1, "revision": 0, "owned": [{"topic": "flights", "partitions": [1]}]}
    heartbeat = parse_heartbeat(said, 1, member("m"), TOPICS)
    assert heartbeat == HeartbeatReceived(1, member("m"), GroupEpoch(1), 0, parts("flights", 1))
    commit = parse_commit({"offsets": [{"topic": "flights", "partition": 1, "offset": 5}]}, 1, TOPICS)
    assert commit == CommitReceived(1, {part("flights", 1): OffsetValue(Offset(5))})
    assert parse_heartbeat({**said, "topicPattern": "f.*"}, 1, member("m"), TOPICS).subscription == Subscription.parse(
        (), "f.*"
    )


def test_should_take_offsets_of_a_topic_out_of_sight_by_its_uid() -> None:
    body = {"offsets": [{"topic": "gone", "topicUid": "uid-gone", "partition": 9, "offset": 5}]}
    assert parse_commit(body, 1, TOPICS).offsets.keys() == {part("gone", 9)}


def test_should_know_a_topic_by_its_uid_alone() -> None:
    body = {"offsets": [{"topicUid": f"uid-{name}", "partition": 2, "offset": 5} for name in ("flights", "orders")]}
    assert parse_commit(body, 1, TOPICS).offsets.keys() == {part("flights", 2), part("orders", 2)}


def test_should_ask_for_offsets_by_the_names_of_topics() -> None:
    assert parse_offsets_asked([], 1, TOPICS) == OffsetsAsked(1)
    assert parse_offsets_asked(["orders"], 1, TOPICS) == OffsetsAsked(1, parts("orders", 0, 1, 2))
    asked = parts("flights", 0, 2) | parts("orders", 1)
    assert parse_offsets_asked(["orders:1", "flights:0,2"], 1, TOPICS) == OffsetsAsked(1, asked)


@given(st.frozensets(keys, min_size=1))
def test_should_ask_for_offsets_of_no_more_than_is_asked(partitions: frozenset[PartitionKey]) -> None:
    path = call_of(GROUP, OffsetsAsked(1, partitions), NAMES).path
    asked = parse_qs(urlsplit(path).query)["topic"]
    assert parse_offsets_asked(asked, 1, TOPICS).partitions == partitions


def test_should_ask_for_whole_topics_where_partitions_are_too_many_for_a_url() -> None:
    many = {f"topic-{number}": shape(f"topic-{number}", 1024) for number in range(3)}
    partitions = frozenset(key for each in many.values() for key in partitions_of(each))
    call = call_of(GROUP, OffsetsAsked(1, partitions), names_in(many))
    assert call.path.endswith("/offsets?topic=topic-0&topic=topic-1&topic=topic-2")


def _beat(body: object) -> object:
    return parse_heartbeat(body, 1, member("m"), TOPICS)


def _join(body: object) -> object:
    return parse_join(body, 1, member("m"), "")


def _commit(body: object) -> object:
    return parse_commit(body, 1, TOPICS)


def _progress(body: object) -> object:
    return parse_commit(body, 1, TOPICS, GroupType.SPARK)


def _one(**fields: object) -> dict[str, object]:
    return {"offsets": [{"topic": "flights", "partition": 0, "offset": 1, **fields}]}


@pytest.mark.parametrize(
    ("read", "body", "code", "said"),
    [
        (_join, [1], "InvalidRequest", "the body is [1]: send a JSON object"),
        (_join, {}, "InvalidRequest", "subscribes to nothing"),
        (_join, {"topics": "flights"}, "InvalidRequest", "topics of the body is 'flights': send a list of strings"),
        (_join, {"topics": [1]}, "InvalidRequest", "topics of the body is [1]: send a list of strings"),
        (_join, {"topics": ["a"], "instanceId": 3}, "InvalidRequest", "instanceId of the body is 3: send a string"),
        (_beat, {"memberEpoch": 1}, "InvalidRequest", "owned is missing in the body: send a list of objects"),
        (_beat, {"owned": [1]}, "InvalidRequest", "owned[0] of the body is 1: send a JSON object"),
        (_beat, {"owned": [{"topicUid": "u"}]}, "InvalidRequest", "partitions is missing in owned[0] of the body"),
        (
            _beat,
            {"owned": [{"topicUid": "u", "partitions": [-1]}]},
            "InvalidRequest",
            "partitions of owned[0] of the body is -1: send a whole number from 0",
        ),
        (_beat, {"owned": [{"topic": "x", "partitions": [1]}]}, "UnknownTopic", "there is no topic 'x'"),
        (_beat, {"owned": []}, "InvalidRequest", "memberEpoch is missing in the body"),
        (_beat, {"owned": [], "memberEpoch": True}, "InvalidRequest", "memberEpoch of the body is True"),
        (_beat, {"owned": [], "memberEpoch": 1 << 63}, "InvalidRequest", "memberEpoch of the body is 92233"),
        (_commit, {"offsets": "x" * 200}, "InvalidRequest", "xxx...: send a list of objects"),
        (_commit, _one(offset=-1), "InvalidRequest", "offset of offsets[0] of the body is -1"),
        (_commit, _one(topic="x"), "UnknownTopic", "there is no topic 'x'"),
        (_commit, _one(topic=None), "InvalidRequest", "topic is missing in offsets[0]"),
        (_commit, _one(topicUid="old"), "StaleTopic", "topic flights is uid-flights now, no longer old"),
        (_commit, _one(partition=4), "UnknownPartition", "the partitions 0 to 3, and not 4"),
        (_commit, {"offsets": _one()["offsets"] * 2}, "InvalidRequest", "partition 0 of flights twice"),  # type: ignore[operator]
        (_progress, {"memberId": "m1", **_one()}, "InvalidRequest", "a group of type Spark has no members"),
        (_commit, _one(topicUid="x" * 65), "InvalidRequest", "is metadata.uid of the Topic"),
        (_commit, _one(topic=None, topicUid="uid-flights", partition=4), "UnknownPartition", "0 to 3, and not 4"),
        (_commit, _one(topic="gone", topicUid="u", partition=1024), "UnknownPartition", "0 to 1023, and not 1024"),
        (_beat, {"owned": [{"topicUid": "\u00e9", "partitions": [0]}]}, "InvalidRequest", "is metadata.uid"),
        (lambda body: parse_reset(body, 1, TOPICS), {"id": ""}, "InvalidRequest", "id of the body is empty"),
        (lambda body: parse_reset(body, 1, TOPICS), {"id": "x" * 64}, "InvalidRequest", "give it 63 at most"),
        (lambda body: parse_offsets_asked(["flights:"], 1, TOPICS), {}, "InvalidRequest", "as in flights:0,3"),
        (lambda body: parse_offsets_asked(["flights:1,x"], 1, TOPICS), {}, "InvalidRequest", "as in flights:0,3"),
        (lambda body: parse_offsets_asked(["x"], 1, TOPICS), {}, "UnknownTopic", "there is no topic 'x'"),
        (
            parse_groups,
            {"groups": [{"group": "a", "state": "Fine"}]},
            "InvalidRequest",
            "state of groups[0] of the coordinator's answer is 'Fine': send one of Empty, Assigning",
        ),
        (parse_membership, [], "InvalidRequest", "the coordinator's answer is []"),
    ],
)
def test_should_say_what_is_wrong(read: Callable[[object], object], body: object, code: str, said: str) -> None:
    with pytest.raises(HeadraceError) as raised:
        read(body)
    assert raised.value.code == code
    assert said in raised.value.message


def test_should_ask_for_an_answer_at_once() -> None:
    said = {"memberEpoch": 1, "owned": [], "waitMs": 3_000}
    assert heartbeat_without_waiting(said) == ({**said, "waitMs": 0}, 3_000)
    assert said["waitMs"] == 3_000


@pytest.mark.parametrize(
    ("said", "wait_ms"),
    [({}, 0), ({"waitMs": "3"}, 0), ({"waitMs": True}, 0), ({"waitMs": -1}, 0), ({"waitMs": 1 << 40}, 3_000)],
)
def test_should_believe_no_wait_that_is_none(said: dict[str, object], wait_ms: int) -> None:
    assert heartbeat_without_waiting(said) == ({**said, "waitMs": 0}, wait_ms)


def test_should_leave_to_the_coordinator_what_is_no_heartbeat() -> None:
    assert heartbeat_without_waiting([1]) == ([1], 0)


@pytest.mark.parametrize(
    ("answer", "kept_ms"),
    [
        ({"assignment": None, "heartbeatMs": 3_000}, 2_000),
        ({"assignment": None, "heartbeatMs": 250}, 250),
        ({"assignment": [], "heartbeatMs": 3_000}, 0),
        ({"code": "UnknownMember"}, 0),
        ([], 0),
    ],
)
def test_should_keep_an_answer_without_news(answer: object, kept_ms: int) -> None:
    assert answer_pause_ms(answer, 2_000) == kept_ms
