"""The sessions of a blocking producer. Each outcome is told once, to `tell`, by whichever thread has it."""

from collections.abc import Callable

from headrace.client import calls
from headrace.client.batches import Batch
from headrace.client.brokers import Brokers
from headrace.client.calls import Buffers
from headrace.client.clock import now_ms
from headrace.client.produce_session import Outcome, ProduceChannel, ProduceSession, Refused
from headrace.client.record import TopicPartition
from headrace.client.sessions import Sessions
from headrace.http2.blocking import BlockingStream


class ProduceSessions(Sessions[ProduceSession]):
    def __init__(self, brokers: Brokers, acks: str, tell: Callable[[list[Outcome]], None]) -> None:
        super().__init__(brokers, ProduceSession)
        self._acks, self._tell = acks, tell
        self._channels: dict[TopicPartition, tuple[ProduceSession, ProduceChannel, BlockingStream]] = {}

    def has_channel(self, partition: TopicPartition) -> bool:
        return partition in self._channels

    def carrier(self, partition: TopicPartition) -> BlockingStream | None:
        """What its answers come by."""
        return self._channels.get(partition, (None, None, None))[2]

    def produce(self, batch: Batch, encoded: Buffers) -> bool:
        """Send it on the channel of its partition. False: there is none any more."""
        with self._lock:
            session, channel, stream = self._channels.get(batch.partition, (None, None, None))
            if session is None or channel is None or stream is None or not session.is_open(channel):
                return False
            stream.send(*channel.produce(batch, encoded))
            return True

    def open(self, batch: Batch, encoded: Buffers) -> bool:
        """Send it as the first of a new channel; may connect. False: only requests lead to its partition just now."""
        partition = batch.partition
        layout = self._brokers.layout_with(partition)
        url = self._leader_url(layout, partition.partition)
        if url is None:
            return False
        session, stream = self._session(url)
        timeout_ms = self._brokers.request_timeout_ms
        terms = calls.produce_terms(self._brokers.namespace, layout, partition.partition, self._acks, timeout_ms)
        with self._lock:
            channel, opening = session.open(partition, terms)
            self._channels[partition] = (session, channel, stream)
            stream.send(opening, *channel.produce(batch, encoded))
        return True

    def end_overdue(self) -> None:
        """Give up the sessions in which an answer is missing for longer than its time limit."""
        limit_ms = self._brokers.request_timeout_ms + calls.ANSWER_SLACK_MS
        for session, stream in list(self._streams.values()):
            with self._lock:
                oldest_ms = session.oldest_ms()
            if oldest_ms is not None and now_ms() - oldest_ms > limit_ms:
                self._end(session, calls.overdue_error(session.url, limit_ms))
                stream.cancel()

    def _hear(self, session: ProduceSession, news: list[Outcome]) -> None:
        with self._lock:
            for outcome in news:
                if isinstance(outcome, Refused):
                    owner, channel, _ = self._channels.get(outcome.partition, (None, None, None))
                    if owner is not None and channel is not None and not owner.is_open(channel):
                        del self._channels[outcome.partition]
        if news:
            self._tell(news)
