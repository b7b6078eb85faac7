"""The sessions that a client has, one with each leader, and the servers that know none. No I/O, and no lock.

The base of `sessions.Sessions` and `async_sessions.AsyncSessions`, which open the streams and listen to them. A session
that is over stays until its leader is wanted again. A server that has said that it knows no sessions is asked by
requests from then on.
"""

from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from headrace.client import calls
from headrace.client.clock import now_ms
from headrace.client.directory import Directory
from headrace.client.layout import TopicLayout
from headrace.client.session import LeaderSession
from headrace.core.errors import BrokerUnreachableError, HeadraceError
from headrace.http2.blocking import Response


class Answering(Protocol):
    """The stream of a session."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...


S = TypeVar("S", bound=LeaderSession[Any, Any])
T = TypeVar("T", bound=Answering)


class KnownSessions(Generic[S, T]):
    def __init__(self, directory: Directory, make_session: Callable[[str], S]) -> None:
        self._directory, self._make_session = directory, make_session
        self._streams: dict[str, tuple[S, T]] = {}
        """By URL."""
        self._without: set[str] = set()
        """Servers that know no sessions."""

    def _leader_url(self, layout: TopicLayout, partition: int) -> str | None:
        """None: only requests lead there just now."""
        url = self._directory.leader_url(layout, partition, now_ms())
        return None if url in self._without else url

    def _silent(self, session: S, now_ms: int) -> set[str]:
        """Topics whose leaders are to be asked for, because this one is silent."""
        if session.error is not None or not session.is_silent(now_ms):
            return set()
        self._directory.routes.silent(session.url, now_ms)
        return session.topics

    def _known(self, url: str) -> tuple[S, T] | None:
        """The session with this server that is not over."""
        known = self._streams.get(url)
        return known if known is not None and known[0].error is None else None

    def _why(self, session: S, stream: T, refusal: list[bytes]) -> HeadraceError:
        """Why a stream has ended that did not break: `refusal` is what came of an answer that is an error."""
        if stream.status < 400:
            return calls.ended_error(session.url)
        error = calls.refused_session(Response(stream.status, stream.headers, b"".join(refusal)), session.url)
        if error.details.get("hasSessions") is False:
            self._without.add(session.url)
        return error

    def _told(self, session: S, error: HeadraceError) -> HeadraceError:
        """The error to end it with: that a server cannot be reached is news for the directory, once."""
        if session.error is None and isinstance(error, BrokerUnreachableError):
            return self._directory.unreachable(session.url, error, now_ms())
        return error
