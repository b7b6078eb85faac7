"""What a broker, or whatever stands before it, answers: taken over, or raised as the error that it is."""

import json
import ssl
from dataclasses import dataclass, field
from typing import Any

import pytest

from headrace.client.record import TopicPartition
from headrace.client.transport.calls import Calls, Directory, base_offset, check, fetched, offset
from headrace.client.transport.discovery import Servers
from headrace.core.errors import (
    BrokerUnreachableError,
    NotLeaderError,
    RemoteError,
    StaleTopicError,
    ThrottledError,
    UnknownPartitionError,
)

PROXY, LEADER = "https://api/proxy", "https://leader:9701"
CALLS = Calls("name space", 30_000)


@dataclass
class Answered:
    status: int = 200
    document: Any = None
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def body(self) -> bytes:
        return json.dumps(self.document).encode()


def metadata(uid: str = "u1", partitions: int = 1, leader: str = LEADER) -> Answered:
    named = {"id": 0, "url": leader}
    numbered = [{"partition": n, "leader": named if n == 0 else None, "leaderEpoch": 4} for n in range(partitions)]
    return Answered(document={"name": "flights", "uid": uid, "maxMessageBytes": 1000, "partitions": numbered})


def test_should_ask_the_leader_as_it_is_known_and_send_what_the_caller_wants_sent() -> None:
    directory = Directory(Servers((PROXY,), {"x-tenant": "t"}, ssl.create_default_context()))
    layout = directory.learn("flights", metadata(partitions=2), 0)
    call = CALLS.fetch(layout, 0, 5, max_bytes=100, wait_ms=2_000)
    path = "/v1/namespaces/name%20space/topics/flights/partitions/0/records"
    assert call.path == f"{path}?offset=5&maxBytes=100&maxWaitMs=2000&topicUid=u1&leaderEpoch=4"
    assert call.timeout_s == 34.0
    assert directory.url_for(call, 0) == LEADER
    assert directory.headers_of(call)["x-tenant"] == "t"
    offline = CALLS.produce(layout, 1, [b"batch"], "all")
    assert "leaderEpoch" not in offline.path
    assert directory.url_for(offline, 0) == PROXY
    assert directory.headers_of(offline)["content-type"] == "application/vnd.headrace.batch"


@pytest.mark.parametrize(
    ("server", "leader", "has_bundle", "asked"),
    [
        ("https://a:9701", "https://a:9701", False, "https://a:9701"),
        ("https://a:9701", "https://b:9701", True, "https://b:9701"),
        ("https://a:9701", "https://b:9701", False, "https://a:9701"),
        ("https://a:9701", "http://a:9701", True, "https://a:9701"),
        ("https://a:9701", "http://127.0.0.1:22", True, "https://a:9701"),
        ("http://127.0.0.1:9701", "http://localhost:9702", False, "http://localhost:9702"),
        ("http://127.0.0.1:9701", "http://evil.example:9702", True, "http://127.0.0.1:9701"),
    ],
)
def test_should_send_a_token_to_brokers_of_the_cluster_alone(
    server: str, leader: str, has_bundle: bool, asked: str
) -> None:
    """Whoever may write a Lease, or answer a request for metadata, may name any URL."""
    bundle = ssl.create_default_context() if has_bundle else None
    directory = Directory(Servers((server,), {"authorization": "Bearer secret"}, bundle))
    layout = directory.learn("flights", metadata(leader=leader), 0)
    assert directory.url_for(CALLS.fetch(layout, 0, 5, max_bytes=100, wait_ms=2_000), 0) == asked
    assert directory.leader_url(layout, 0, 0) in (None, asked)
    directory.routes.failed(server, 0)
    assert directory.url_for(CALLS.topics(), 0) == asked, "nor where it is the last that might answer"


def test_should_ask_any_broker_that_metadata_names_when_there_is_no_token() -> None:
    directory = Directory(Servers(("http://a:9701",)))
    layout = directory.learn("flights", metadata(leader="http://b:9701"), 0)
    assert directory.leader_url(layout, 0, 0) == "http://b:9701"


def test_should_send_everything_through_the_proxy_when_leaders_are_out_of_reach() -> None:
    directory = Directory(Servers((PROXY,), reaches_leaders=False))
    layout = directory.learn("flights", metadata(), 0)
    assert directory.url_for(CALLS.offset(layout, 0, "latest"), 0) == PROXY


def test_should_tell_readers_when_a_topic_was_created_again() -> None:
    directory = Directory(Servers((PROXY,)))
    directory.pin(directory.learn("flights", metadata("u1"), 0))
    directory.forget("flights")
    with pytest.raises(StaleTopicError, match="flights was deleted and created again"):
        directory.learn("flights", metadata("u2"), 0)
    assert directory.newest("flights") is None


def test_should_ask_again_before_it_says_that_a_partition_is_not_there() -> None:
    directory = Directory(Servers((PROXY,)))
    layout = directory.learn("flights", metadata(), 0)
    directory.check_partition(layout, TopicPartition("flights", 0))
    with pytest.raises(UnknownPartitionError, match="partition 1 of flights does not exist: it has 1"):
        directory.check_partition(layout, TopicPartition("flights", 1))
    assert directory.fresh("flights", 0) is None


def test_should_raise_the_brokers_own_error_with_the_wait_that_it_asks_for() -> None:
    with pytest.raises(NotLeaderError, match="broker 2 leads"):
        check(Answered(421, {"code": "NotLeader", "detail": "broker 2 leads"}), LEADER)
    with pytest.raises(ThrottledError) as caught:
        check(Answered(429, {"code": "Throttled", "detail": "busy"}, {"retry-after": "3"}), LEADER)
    assert caught.value.details == {"retryAfterMs": 3_000}


def test_should_try_again_when_a_proxy_reaches_no_broker() -> None:
    status = {"kind": "Status", "message": 'no endpoints available for service "headrace-bootstrap"'}
    with pytest.raises(
        BrokerUnreachableError, match=r"https://api/proxy reaches no broker .*\(HTTP 503\): no endpoints"
    ):
        check(Answered(503, status), PROXY)
    with pytest.raises(BrokerUnreachableError, match="answers without a problem document"):
        check(Answered(502, []), PROXY)
    with pytest.raises(RemoteError, match="HTTP 404"):
        check(Answered(404, {"kind": "Status"}), PROXY)


def test_should_ask_whether_it_is_a_broker_when_an_answer_is_something_else() -> None:
    assert base_offset(Answered(document={})) == -1
    assert offset(Answered(document={"offset": None})) is None
    assert fetched(Answered(headers={"headrace-next-offset": "7"}), TopicPartition("flights", 0)).next_offset == 7
    with pytest.raises(RemoteError, match="is it a Headrace broker"):
        fetched(Answered(), TopicPartition("flights", 0))
    with pytest.raises(RemoteError, match="is it a Headrace broker"):
        base_offset(Answered(document=[]))
    with pytest.raises(RemoteError, match="is it a Headrace broker"):
        offset(Answered(document={}))


def test_should_take_a_topic_that_was_created_again_where_positions_were_moved_there() -> None:
    directory = Directory(Servers(("http://a:1",)))
    directory.pin(directory.learn("flights", metadata("u1"), 0))
    directory.pin_anew("flights", "u1")
    assert directory.fresh("flights", 0) is not None
    directory.pin_anew("flights", "u2")
    assert directory.fresh("flights", 0) is None
    assert directory.learn("flights", metadata("u2"), 0).uid == "u2"
    with pytest.raises(StaleTopicError):
        directory.learn("flights", metadata("u1"), 0)
