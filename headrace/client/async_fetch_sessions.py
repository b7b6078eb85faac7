"""The sessions of an asyncio consumer. Every ask is answered once, to `tell`, on the loop."""

from collections.abc import Callable

from headrace.client import calls
from headrace.client.async_brokers import AsyncBrokers
from headrace.client.async_sessions import AsyncSessions
from headrace.client.clock import now_ms
from headrace.client.cursor import Ask
from headrace.client.fetch_session import FetchChannel, FetchSession
from headrace.client.read_ahead import Answered
from headrace.client.record import TopicPartition
from headrace.core.errors import HeadraceError, StalledError
from headrace.core.limits import SESSION_SILENCE_MS_MAX
from headrace.http2.client import AsyncStream


class AsyncFetchSessions(AsyncSessions[FetchSession]):
    def __init__(self, brokers: AsyncBrokers, tell: Callable[[Answered], None]) -> None:
        super().__init__(brokers, FetchSession)
        self._tell = tell
        self._channels: dict[TopicPartition, tuple[FetchSession, FetchChannel, AsyncStream]] = {}

    def ask(self, ask: Ask) -> bool:
        """Ask on the channel that goes on there. False: there is none."""
        partition = ask.cursor.partition
        session, channel, stream = self._channels.get(partition, (None, None, None))
        if session is None or channel is None or stream is None:
            return False
        if not channel.goes_on_with(ask):
            session.close(channel)
            del self._channels[partition]
            self._send(session, stream)
            return False
        answered = session.ask(channel, ask)
        if answered is not None and isinstance(answered.outcome, HeadraceError):
            del self._channels[partition]
        self._send(session, stream)
        if answered is not None:
            self._tell(answered)
        return True

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
        session.heard_ms = session.heard_ms or now_ms()
        if ask.is_current():  # Else somebody has moved on meanwhile, and nobody wants the answer.
            self._channels[partition] = (session, session.open(ask, terms), stream)
            self._send(session, stream)
        return True

    def look(self) -> None:
        """Answer those who have asked for long; give up sessions of which nothing is heard any more."""
        at_ms = now_ms()
        for session, stream in list(self._streams.values()):
            silent_ms = session.silent_ms(at_ms)
            if silent_ms <= SESSION_SILENCE_MS_MAX // 2:
                for answered in session.idle(at_ms):
                    self._tell(answered)
            elif silent_ms > SESSION_SILENCE_MS_MAX and session.error is None and session.is_asked:
                self._end(session, calls.overdue_error(session.url, silent_ms))
                stream.cancel()

    def _hear(self, session: FetchSession, news: list[Answered]) -> None:
        session.heard_ms = now_ms()
        for answered in news:
            owner, channel, _ = self._channels.get(answered.ask.cursor.partition, (None, None, None))
            if owner is not None and channel is not None and not owner.is_open(channel) and not channel.arrived:
                del self._channels[answered.ask.cursor.partition]
            self._tell(answered)
        known = self._streams.get(session.url)
        if known is not None and known[0] is session:
            self._send(session, known[1])

    def _cancelled(self, session: FetchSession) -> None:
        self._end(
            session, StalledError(f"the task that reads from {session.url} was cancelled: iterate again to go on")
        )

    def _send(self, session: FetchSession, stream: AsyncStream) -> None:
        if data := session.outgoing():
            stream.send(data)
