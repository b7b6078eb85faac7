"""The sessions of an asyncio client: what `sessions` is for threads, for the tasks of one event loop.

One task per session reads it. Nothing is awaited between a step of the session and the telling of it.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from headrace.client.async_brokers import AsyncBrokers
from headrace.client.clock import now_ms
from headrace.client.known_sessions import KnownSessions
from headrace.client.session import LeaderSession
from headrace.core.errors import HeadraceError
from headrace.http2.client import AsyncStream

S = TypeVar("S", bound=LeaderSession[Any, Any])


class AsyncSessions(KnownSessions[S, AsyncStream], ABC, Generic[S]):
    def __init__(self, brokers: AsyncBrokers, make_session: Callable[[str], S]) -> None:
        super().__init__(brokers.directory, make_session)
        self._brokers = brokers
        self._opening: dict[str, asyncio.Lock] = {}
        self._readers: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Nothing more is read."""
        readers = list(self._readers)
        for task in readers:
            task.cancel()
        await asyncio.gather(*readers, return_exceptions=True)

    @abstractmethod
    def _hear(self, session: S, news: list[Any]) -> None: ...

    @abstractmethod
    def _cancelled(self, session: S) -> None:
        """Somebody has ended the task that reads it: `close`, or somebody from outside."""

    def look_elsewhere(self) -> set[str]:
        """Leave leaders that others have replaced -> topics whose leaders are silent: `AsyncBrokers.ask_who_leads`."""
        silent: set[str] = set()
        for session, _ in list(self._streams.values()):
            silent |= self._silent(session, now_ms())
            if news := session.leave_moved(self._directory.newest):
                self._hear(session, news)
        return silent

    async def _session(self, url: str) -> tuple[S, AsyncStream]:
        """May connect."""
        async with self._opening.setdefault(url, asyncio.Lock()):
            known = self._known(url)
            if known is not None:
                return known
            session = self._make_session(url)
            stream = await self._brokers.open_session(url, session.decode)
            self._streams[url] = session, stream
            task = asyncio.get_running_loop().create_task(self._read(session, stream), name="headrace-session")
            self._readers.add(task)
            task.add_done_callback(partial(self._done, session))
            return session, stream

    def _done(self, session: S, task: asyncio.Task[None]) -> None:
        """A task may be cancelled before it has begun: it says nothing then."""
        self._readers.discard(task)
        if task.cancelled():
            self._cancelled(session)

    async def _read(self, session: S, stream: AsyncStream) -> None:
        refusal: list[bytes] = []
        try:
            while chunks := await stream.receive(None):
                if stream.status >= 400:
                    refusal += chunks
                else:
                    self._hear(session, session.receive(chunks))
        except HeadraceError as error:
            self._end(session, error)
        else:
            self._end(session, self._why(session, stream, refusal))

    def _end(self, session: S, error: HeadraceError) -> None:
        self._hear(session, session.end(self._told(session, error)))
