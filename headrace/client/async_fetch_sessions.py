"""The sessions of an asyncio consumer: what `fetch_sessions` is for threads. Every ask is answered once, to `tell`."""

from collections.abc import Callable

from headrace.client import calls
from headrace.client.async_brokers import AsyncBrokers
from headrace.client.async_sessions import AsyncSessions
from headrace.client.clock import now_ms
from headrace.client.cursor import Ask
from headrace.client.fetch_channels import FetchChannels
from headrace.client.fetch_session import FetchSession
from headrace.client.read_ahead import Answered
from headrace.client.record import TopicPartition
from headrace.core.errors import HeadraceError, StalledError
from headrace.http2.client import AsyncStream


class AsyncFetchSessions(AsyncSessions[FetchSession]):
    def __init__(self, brokers: AsyncBrokers, tell: Callable[[Answered], None]) -> None:
        super().__init__(brokers, FetchSession)
        self._tell = tell
        self._channels: FetchChannels[AsyncStream] = FetchChannels()

    def ask(self, ask: Ask) -> bool:
        """Ask on the channel that goes on there. False: there is none."""
        asked = self._channels.ask(ask)
        if asked is None:
            return False
        is_taken, answered, stream, data = asked
        if data:
            stream.send(data)
        if answered is not None:
            self._tell(answered)
        return is_taken

    def drop(self, partition: TopicPartition) -> None:
        """It is not read any more."""
        dropped = self._channels.drop(partition)
        if dropped is not None:
            stream, data = dropped
            stream.send(data)

    async def open(self, ask: Ask, window_bytes: int) -> bool:
        """Ask on a channel, a new one where there is none; may connect. False: only requests lead there just now."""
        partition = ask.cursor.partition
        layout = await self._brokers.layout_with(partition)
        url = self._leader_url(layout, partition.partition)
        if url is None:
            return False
        if self.ask(ask):
            return True
        session, stream = await self._session(url)
        terms = calls.fetch_terms(self._brokers.namespace, layout, partition.partition, ask.offset, window_bytes)
        session.begin(now_ms())
        if data := self._channels.open(ask, session, stream, terms):
            stream.send(data)
        return True

    def look(self) -> None:
        """Answer those who have asked for long; give up sessions of which nothing is heard any more."""
        for session, stream in list(self._streams.values()):
            news = session.look(now_ms())
            if isinstance(news, HeadraceError):
                self._end(session, news)
                stream.cancel()
            else:
                for answered in news:
                    self._tell(answered)

    def _hear(self, session: FetchSession, news: list[Answered]) -> None:
        session.heard_ms = now_ms()
        self._channels.hear(news)
        known = self._streams.get(session.url)
        if known is not None and known[0] is session and (data := session.outgoing()):
            known[1].send(data)
        for answered in news:
            self._tell(answered)

    def _cancelled(self, session: FetchSession) -> None:
        self._end(
            session, StalledError(f"the task that reads from {session.url} was cancelled: iterate again to go on")
        )
