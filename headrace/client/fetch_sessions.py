"""The sessions of a blocking consumer. Every ask is answered once, to `tell`, by whichever thread has the answer."""

from collections.abc import Callable

from headrace.client import calls
from headrace.client.brokers import Brokers
from headrace.client.clock import now_ms
from headrace.client.cursor import Ask
from headrace.client.fetch_session import FetchChannel, FetchSession
from headrace.client.read_ahead import Answered
from headrace.client.record import TopicPartition
from headrace.client.sessions import Sessions
from headrace.core.errors import HeadraceError
from headrace.core.limits import SESSION_SILENCE_MS_MAX
from headrace.http2.blocking import BlockingStream


class FetchSessions(Sessions[FetchSession]):
    def __init__(self, brokers: Brokers, tell: Callable[[Answered], None]) -> None:
        super().__init__(brokers, FetchSession)
        self._tell = tell
        self._channels: dict[TopicPartition, tuple[FetchSession, FetchChannel, BlockingStream]] = {}

    def ask(self, ask: Ask) -> bool:
        """Ask on the channel that goes on there. False: there is none."""
        partition = ask.cursor.partition
        with self._lock:
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

    def open(self, ask: Ask, window_bytes: int) -> bool:
        """Ask on a channel, a new one where there is none; may connect. False: only requests lead there just now."""
        partition = ask.cursor.partition
        layout = self._brokers.layout_with(partition)
        url = self._leader_url(layout, partition.partition)
        if url is None:
            return False
        if self.ask(ask):
            return True
        session, stream = self._session(url)
        terms = calls.fetch_terms(self._brokers.namespace, layout, partition.partition, ask.offset, window_bytes)
        with self._lock:
            session.heard_ms = session.heard_ms or now_ms()
            if ask.is_current():  # Else somebody has moved on meanwhile, and nobody wants the answer.
                self._channels[partition] = (session, session.open(ask, terms), stream)
                self._send(session, stream)
        return True

    def look(self) -> None:
        """Answer those who have asked for long; give up sessions of which nothing is heard any more."""
        at_ms = now_ms()
        answered: list[Answered] = []
        for session, stream in list(self._streams.values()):
            with self._lock:
                silent_ms = session.silent_ms(at_ms)
                if silent_ms <= SESSION_SILENCE_MS_MAX // 2:
                    answered += session.idle(at_ms)
                is_dead = silent_ms > SESSION_SILENCE_MS_MAX and session.error is None and session.is_asked
            if is_dead:
                self._end(session, calls.overdue_error(session.url, silent_ms))
                stream.cancel()
        for each in answered:
            self._tell(each)

    def _hear(self, session: FetchSession, news: list[Answered]) -> None:
        with self._lock:
            session.heard_ms = now_ms()
            for answered in news:
                owner, channel, _ = self._channels.get(answered.ask.cursor.partition, (None, None, None))
                if owner is not None and channel is not None and not owner.is_open(channel) and not channel.arrived:
                    del self._channels[answered.ask.cursor.partition]
            known = self._streams.get(session.url)
            if known is not None and known[0] is session:
                self._send(session, known[1])
        for answered in news:
            self._tell(answered)

    def _send(self, session: FetchSession, stream: BlockingStream) -> None:
        if data := session.outgoing():
            stream.send(data)
