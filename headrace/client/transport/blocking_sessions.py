"""The sessions of a blocking client: one with each leader, opened when it is first needed.

`BlockingSessions` is the base of `ProduceSessions` and `FetchSessions`. News of a session is told by the thread of
its connection, or by the thread that found it overdue. One lock guards all of it; it is never held while waiting for
the network or while news is told.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from headrace.client.clock import now_ms
from headrace.client.transport.brokers import Brokers
from headrace.client.transport.leader_session import KnownSessions, LeaderSession
from headrace.core.errors import HeadraceError
from headrace.http2.blocking_transport import BlockingStream

S = TypeVar("S", bound=LeaderSession[Any, Any])


class BlockingSessions(KnownSessions[S, BlockingStream], ABC, Generic[S]):
    def __init__(self, brokers: Brokers, make_session: Callable[[str], S]) -> None:
        super().__init__(brokers.directory, make_session)
        self._brokers = brokers
        self._lock = threading.Lock()
        self._opening: dict[str, threading.Lock] = {}

    @abstractmethod
    def _hear(self, session: S, news: list[Any]) -> None:
        """Called without the lock."""

    def look_elsewhere(self) -> set[str]:
        """Leave leaders that others have replaced -> topics whose leaders are silent: `Brokers.ask_who_leads`."""
        silent: set[str] = set()
        for session, _ in list(self._streams.values()):
            with self._lock:
                news = session.leave_moved(self._directory.newest)
                silent |= self._silent(session, now_ms())
            if news:
                self._hear(session, news)
        return silent

    def _session(self, url: str) -> tuple[S, BlockingStream]:
        """May connect."""
        with self._opening.setdefault(url, threading.Lock()):
            known = self._known(url)
            if known is not None:
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
            self._end(session, stream.error or self._why(session, stream, refusal))

    def _end(self, session: S, error: HeadraceError) -> None:
        error = self._told(session, error)
        with self._lock:
            news = session.end(error)
        self._hear(session, news)
