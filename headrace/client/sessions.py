"""The sessions of a blocking client: one with each leader, opened when it is first needed.

`Sessions` is the base of `ProduceSessions` and `FetchSessions`. What happens in a session is told by the thread of the
connection that it came by, or by the one that found it overdue. All of it is guarded by one lock, which is never held
while waiting for the network or while news are told.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from headrace.client import calls
from headrace.client.brokers import Brokers
from headrace.client.clock import now_ms
from headrace.client.layout import TopicLayout
from headrace.client.session import LeaderSession
from headrace.core.errors import BrokerUnreachableError, HeadraceError
from headrace.http2.blocking import BlockingStream, Response

S = TypeVar("S", bound=LeaderSession[Any, Any])


class Sessions(ABC, Generic[S]):
    def __init__(self, brokers: Brokers, make_session: Callable[[str], S]) -> None:
        self._brokers, self._make_session = brokers, make_session
        self._lock = threading.Lock()
        self._opening: dict[str, threading.Lock] = {}
        self._streams: dict[str, tuple[S, BlockingStream]] = {}
        self._without: set[str] = set()
        """Servers that know no sessions."""

    @abstractmethod
    def _hear(self, session: S, news: list[Any]) -> None:
        """Called without the lock."""

    def _leader_url(self, layout: TopicLayout, partition: int) -> str | None:
        """None: only requests lead there just now."""
        url = self._brokers.directory.leader_url(layout, partition, now_ms())
        return None if url in self._without else url

    def _session(self, url: str) -> tuple[S, BlockingStream]:
        """May connect."""
        with self._opening.setdefault(url, threading.Lock()):
            known = self._streams.get(url)
            if known is not None and known[0].error is None:
                return known
            session = self._make_session(url)
            refusal: list[bytes] = []
            stream = self._brokers.open_session(url, partial(self._happened, session, refusal), session.decode)
            self._streams[url] = session, stream
            return session, stream

    def _happened(self, session: S, refusal: list[bytes], stream: BlockingStream) -> None:
        """Called by the connection's thread."""
        is_over = stream.is_over
        chunks = stream.take()
        if stream.status >= 400:
            refusal += chunks
        elif chunks:
            with self._lock:
                news = session.receive(chunks)
            self._hear(session, news)
        if is_over:
            self._end(session, self._why(session, stream, refusal))

    def _why(self, session: S, stream: BlockingStream, refusal: list[bytes]) -> HeadraceError:
        if stream.error is not None or stream.status < 400:
            return stream.error or calls.ended_error(session.url)
        error = calls.refused_session(Response(stream.status, stream.headers, b"".join(refusal)), session.url)
        if error.details.get("hasSessions") is False:
            self._without.add(session.url)
        return error

    def _end(self, session: S, error: HeadraceError) -> None:
        if session.error is None and isinstance(error, BrokerUnreachableError):
            error = self._brokers.directory.unreachable(session.url, error, now_ms())
        with self._lock:
            news = session.end(error)
        self._hear(session, news)
