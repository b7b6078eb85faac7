"""One session with each leader, why it ended, and who is asked by requests from then on."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from headrace.client.consumer.fetch_session import FetchSession
from headrace.client.transport.brokers import Brokers
from headrace.client.transport.discovery import Servers
from headrace.client.transport.leader_session import KnownSessions
from headrace.client.transport.metadata import PartitionLayout, TopicLayout
from headrace.core.errors import (
    BrokerUnreachableError,
    HeadraceError,
    NotLeaderError,
    NotReadyError,
    StalledError,
    UntrustedBrokerError,
)

URL, OTHER = "http://a:1", "http://b:1"
LAYOUT = TopicLayout("flights", "uid-1", 1 << 20, (PartitionLayout(URL, 3), PartitionLayout(None, 0)), 0)


@dataclass
class Stream:
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    def send(self, *buffers: Any) -> None:
        pass

    def cancel(self) -> None:
        pass


class Sessions(KnownSessions[FetchSession]):
    def __init__(self) -> None:
        brokers = Brokers(Servers((URL, OTHER)), None, timeout_ms=1_000, request_timeout_ms=1_000)
        super().__init__(brokers, FetchSession)

    def _hear(self, session: FetchSession, news: list[Any]) -> None:
        assert not news

    def cancelled(self, session: FetchSession) -> None:
        pass

    def begin(self, stream: Stream) -> FetchSession:
        session = FetchSession(URL)
        self._streams[URL] = session, stream
        return session

    def has_session(self) -> bool:
        return self._known(URL) is not None

    def leads(self, partition: int = 0) -> str | None:
        return self._leader_url(LAYOUT, partition)

    def why(self, stream: Stream, refusal: bytes = b"") -> HeadraceError:
        session = self.begin(stream)
        session.refusal += [refusal[:5], refusal[5:]]
        return self._why(session, stream)

    def told(self, session: FetchSession, error: HeadraceError) -> HeadraceError:
        return self._told(session, error)


def problem(code: str, status: int, **more: object) -> bytes:
    return json.dumps({"code": code, "status": status, "detail": "no", **more}).encode()


def test_should_know_a_session_until_it_is_over() -> None:
    sessions = Sessions()
    assert not sessions.has_session()
    session = sessions.begin(Stream())
    assert sessions.has_session()
    session.end(BrokerUnreachableError("gone"))
    assert not sessions.has_session()


def test_should_say_that_an_answer_has_ended() -> None:
    sessions = Sessions()
    error = sessions.why(Stream())
    assert (type(error), error.message) == (BrokerUnreachableError, f"broker {URL} has ended the session")
    assert sessions.leads() == URL
    assert sessions.leads(1) is None, "nobody leads it"


def test_should_ask_a_server_that_knows_no_sessions_by_requests_from_then_on() -> None:
    sessions = Sessions()
    error = sessions.why(Stream(404), problem("NotFound", 404))
    assert isinstance(error, NotReadyError)
    assert f"broker {URL} takes no sessions" in error.message
    assert sessions.leads() is None


def test_should_try_a_session_again_where_it_was_refused_for_now() -> None:
    sessions = Sessions()
    error = sessions.why(Stream(503), problem("NotReady", 503))
    assert isinstance(error, NotReadyError)
    assert sessions.leads() == URL


@pytest.mark.parametrize(
    "error", [NotLeaderError("another leads"), StalledError("cancelled"), UntrustedBrokerError("not trusted")]
)
def test_should_tell_the_directory_of_servers_that_cannot_be_reached(error: HeadraceError) -> None:
    sessions = Sessions()
    told = sessions.told(sessions.begin(Stream()), error)
    is_unreachable = isinstance(error, BrokerUnreachableError)
    assert (type(told) if is_unreachable else told) is (BrokerUnreachableError if is_unreachable else error)
    assert sessions.leads() == (None if is_unreachable else URL), "another broker passes requests on"


def test_should_tell_the_directory_once() -> None:
    sessions = Sessions()
    session = sessions.begin(Stream())
    session.end(BrokerUnreachableError("gone"))
    error = BrokerUnreachableError("gone again")
    assert sessions.told(session, error) is error
    assert sessions.leads() == URL
