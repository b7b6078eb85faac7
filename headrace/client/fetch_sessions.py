"""The sessions of a blocking consumer. Every ask is answered once, to `tell`, by whichever thread has the answer.

What serves which partition is in `fetch_channels`, under the lock; what that has to say is sent under it too.
"""

from collections.abc import Callable

from headrace.client import calls
from headrace.client.brokers import Brokers
from headrace.client.clock import now_ms
from headrace.client.cursor import Ask
from headrace.client.fetch_channels import FetchChannels
from headrace.client.fetch_session import FetchSession
from headrace.client.read_ahead import Answered
from headrace.client.record import TopicPartition
from headrace.client.sessions import Sessions
from headrace.core.errors import HeadraceError
from headrace.http2.blocking import BlockingStream


class FetchSessions(Sessions[FetchSession]):
    def __init__(self, brokers: Brokers, tell: Callable[[Answered], None]) -> None:
        super().__init__(brokers, FetchSession)
        self._tell = tell
        self._channels: FetchChannels[BlockingStream] = FetchChannels()

    def ask(self, ask: Ask) -> bool:
        """Ask on the channel that goes on there. False: there is none."""
        with self._lock:
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
        with self._lock:
            dropped = self._channels.drop(partition)
            if dropped is not None:
                stream, data = dropped
                stream.send(data)

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
            session.begin(now_ms())
            if data := self._channels.open(ask, session, stream, terms):
                stream.send(data)
        return True

    def look(self) -> None:
        """Answer those who have asked for long; give up sessions of which nothing is heard any more."""
        for session, stream in list(self._streams.values()):
            with self._lock:
                news = session.look(now_ms())
            if isinstance(news, HeadraceError):
                self._end(session, news)
                stream.cancel()
            else:
                for answered in news:
                    self._tell(answered)

    def _hear(self, session: FetchSession, news: list[Answered]) -> None:
        with self._lock:
            session.heard_ms = now_ms()
            self._channels.hear(news)
            known = self._streams.get(session.url)
            if known is not None and known[0] is session and (data := session.outgoing()):
                known[1].send(data)
        for answered in news:
            self._tell(answered)
