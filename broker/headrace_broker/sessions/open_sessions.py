"""The sessions that are open on a broker: the bounds of their number and of what they push, and the broker's stop.

The bytes that a client pushes before there is room for them lie in memory that nobody has counted. So the windows of
all sessions together are bounded: each gets its part, by powers of two, and the more there are the smaller it is. One
per process.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from prometheus_client import CollectorRegistry, Gauge

from headrace.core.errors import HeadraceError, NotReadyError
from headrace.core.limits import (
    H2_REQUEST_WINDOW_BYTES,
    H2_STREAM_WINDOW_BYTES,
    REQUEST_BYTES_IN_FLIGHT_MAX,
    WATCH_DRAIN_MS,
)
from headrace.http2.slow_clients import Patience
from headrace_broker.admission import Requests

SESSIONS_MAX = 1024
"""The sessions that one broker serves; above it clients are told to wait (429)."""
SESSION_WINDOWS_PART = 16
"""The windows of all sessions together are such a part of what bodies may take: nobody has made room for them."""
SESSION_HEARTBEAT_MS = 10_000
"""The time without a frame after which the broker says that it is alive."""


class OpenSession(Protocol):
    """A session, as far as the others are concerned."""

    @property
    def channel_count(self) -> int: ...
    @property
    def is_pending(self) -> bool:
        """Return whether a client waits for an answer to a produce."""

    def drain(self, why: HeadraceError) -> None: ...
    def size_window(self, window: int) -> None:
        """Set how much its client may push."""


@dataclass(slots=True)
class OpenSessions:
    places: Requests = field(default_factory=lambda: _places(SESSIONS_MAX))
    heartbeat_ms: int = SESSION_HEARTBEAT_MS
    patience: Patience = field(default_factory=Patience)
    """The patience with a client that has begun a frame: room is kept for all of it."""
    drain_ms: int = WATCH_DRAIN_MS
    body_bytes: int = REQUEST_BYTES_IN_FLIGHT_MAX
    """The bytes that bodies may take in memory, over all requests."""
    _window: int = H2_STREAM_WINDOW_BYTES
    _tasks: dict[OpenSession, asyncio.Task[Any]] = field(default_factory=dict)
    _draining: HeadraceError | None = None

    @classmethod
    def for_memory(cls, body_bytes: int) -> Self:
        """Make room for as many sessions as have twice the smallest window, where bodies may take so much."""
        most = min(SESSIONS_MAX, body_bytes // (2 * H2_REQUEST_WINDOW_BYTES))
        return cls(_places(most), body_bytes=body_bytes)

    @property
    def open(self) -> int:
        return len(self._tasks)

    @property
    def channels(self) -> int:
        """The number of channels of all sessions."""
        return sum(session.channel_count for session in self._tasks)

    def register(self, registry: CollectorRegistry) -> None:
        """Have the numbers scraped."""
        count = Gauge("headrace_broker_sessions", "Sessions that are open.", registry=registry)
        count.set_function(lambda: self.open)
        channels = Gauge("headrace_broker_session_channels", "Channels of all sessions.", registry=registry)
        channels.set_function(lambda: self.channels)

    @contextmanager
    def one_more(self, session: OpenSession, holder: str | None) -> Iterator[None]:
        """A context around the handling of a session, by the task that handles it, for a client.

        Raises ThrottledError, NotReadyError.
        """
        if self._draining is not None:
            raise self._draining
        task = asyncio.current_task()
        assert task is not None, "handlers run as tasks"
        with self.places.one_more(holder):
            self._tasks[session] = task
            self._share_windows(session)
            try:
                yield
            finally:
                del self._tasks[session]
                self._share_windows()

    def _share_windows(self, *newcomers: OpenSession) -> None:
        part = self.body_bytes // SESSION_WINDOWS_PART // max(1, self.open)
        window = max(H2_REQUEST_WINDOW_BYTES, min(H2_STREAM_WINDOW_BYTES, 1 << part.bit_length() >> 1))
        changed, self._window = window != self._window, window
        for session in tuple(self._tasks) if changed else newcomers:
            session.size_window(window)

    def drain(self) -> None:
        """Fail all channels, because this broker is about to stop; what was produced is answered before that."""
        self._draining = NotReadyError("this broker drains: read the topic's metadata again, and open a session there")
        for session in tuple(self._tasks):
            session.drain(self._draining)
        asyncio.get_running_loop().call_later(self.drain_ms / 1000, self._cancel)

    def _cancel(self) -> None:
        """End the sessions that owe no answer: clients that do not read must not delay the stop."""
        for session, task in self._tasks.items():
            if not session.is_pending:
                task.cancel("the broker stops")


def _places(most: int) -> Requests:
    return Requests(most, "sessions open")
