"""A producer's sessions with leaders: on each channel, the batches of one partition, answered in their order. No I/O.

`ProduceSession` has channels with any number of batches in flight. `ProduceSessions` knows which channel serves each
partition, for both faces; a channel that is over is dropped as soon as the client hears of it, and the next batch opens
another one, with the leader of that time.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headrace.client.clock import now_ms
from headrace.client.producer.batches import Batch
from headrace.client.producer.in_flight import Arrived, Outcome, Refused, leaves_open
from headrace.client.record import TopicPartition
from headrace.client.transport import calls
from headrace.client.transport.calls import Buffers
from headrace.client.transport.errands import BrokerErrands, Errand, StreamPort
from headrace.client.transport.leader_session import KnownSessions, LeaderSession
from headrace.core.errors import BrokenSessionError, HeadraceError
from headrace.core.frames.session_messages import BrokerMessage, OpenProduce, Produce, Produced
from headrace.core.frames.session_terms import ProduceTerms
from headrace.core.log.epochs import NO_EPOCH

LEADER_SILENT_MS = 1_000
"""A leader that owes a producer an answer for longer may not lead any more: another broker is asked who leads."""


@dataclass(slots=True, eq=False)
class ProduceChannel:
    number: int
    partition: TopicPartition
    leader_epoch: int
    pending: deque[Batch] = field(default_factory=deque)
    """The batches that are sent and not answered, in order."""
    sent: int = 0

    def produce(self, batch: Batch, encoded: Buffers) -> list[bytes | bytearray | memoryview]:
        self.pending.append(batch)
        self.sent += 1
        return Produce(self.number, self.sent, encoded).buffers()


class ProduceSession(LeaderSession[ProduceChannel, Outcome]):
    def open(self, partition: TopicPartition, terms: ProduceTerms) -> tuple[ProduceChannel, bytes]:
        """Return a new channel, and the bytes to send. Raises the error of a session that is over."""
        channel = ProduceChannel(self._number(), partition, terms.fence.leader_epoch or NO_EPOCH)
        self._channels[channel.number] = channel
        return channel, OpenProduce(channel.number, terms).pack()

    def oldest_ms(self) -> int | None:
        """Return when the batch was sent that waits longest for its answer."""
        return min((c.pending[0].attempt_ms for c in self._channels.values() if c.pending), default=None)

    def is_silent(self, now_ms: int) -> bool:
        oldest_ms = self.oldest_ms()
        return oldest_ms is not None and now_ms - oldest_ms >= LEADER_SILENT_MS

    def _hear(self, channel: ProduceChannel, message: BrokerMessage) -> list[Outcome]:
        if not isinstance(message, Produced):
            return []
        if not channel.pending:
            raise BrokenSessionError(f"an answer to {message.sequence}, which was not asked")
        return [Arrived(channel.pending.popleft(), message.base_offset)]

    def _failed(self, channel: ProduceChannel, error: HeadraceError) -> list[Outcome]:
        # An error that ends the whole session says nothing of its channels.
        may_be_written = self.error is not None or leaves_open(error)
        return [Refused(channel.partition, error, list(channel.pending), may_be_written)]


class ProduceSessions(KnownSessions[ProduceSession]):
    def __init__(
        self,
        brokers: BrokerErrands,
        acks: str,
        tell: Callable[[list[Outcome]], None],
        stopped: Callable[[str], None],
    ) -> None:
        """Begin without channels. `stopped` is called with a sentence if the task that reads answers is cancelled."""
        super().__init__(brokers, ProduceSession)
        self._acks, self._tell, self._stopped = acks, tell, stopped
        self._channels: dict[TopicPartition, tuple[ProduceSession, ProduceChannel, StreamPort]] = {}

    def has_channel(self, partition: TopicPartition) -> bool:
        """Return whether the partition has a channel, which may be over by the time of the next message."""
        return partition in self._channels

    def carrier(self, partition: TopicPartition) -> Any:
        """Return the stream with the partition's answers, as its face opened it; None without a channel."""
        return self._channels.get(partition, (None, None, None))[2]

    def produce(self, batch: Batch, encoded: Buffers) -> bool:
        """Send the batch on the channel of its partition. False: there is none any more."""
        with self._guard:
            session, channel, stream = self._channels.get(batch.partition, (None, None, None))
            if session is None or channel is None or stream is None or not session.is_open(channel):
                return False
            stream.send(*channel.produce(batch, encoded))
            return True

    def open(self, batch: Batch, encoded: Buffers) -> Errand[bool]:
        """Send the batch as the first of a new channel; may connect. False: only requests lead there just now."""
        partition = batch.partition
        layout = yield from self._brokers.layout_with(partition)
        url = self._leader_url(layout, partition.partition)
        if url is None:
            return False
        session, stream = yield from self._session(url)
        timeout_ms = self._brokers.request_timeout_ms
        terms = calls.produce_terms(self._brokers.namespace, layout, partition.partition, self._acks, timeout_ms)
        with self._guard:
            channel, opening = session.open(partition, terms)
            self._channels[partition] = (session, channel, stream)
            stream.send(opening, *channel.produce(batch, encoded))
        return True

    def end_overdue(self) -> None:
        """Give up the sessions in which an answer is missing for longer than its time limit."""
        limit_ms = self._brokers.request_timeout_ms + calls.ANSWER_SLACK_MS
        for session, stream in list(self._streams.values()):
            with self._guard:
                oldest_ms = session.oldest_ms()
            if oldest_ms is not None and now_ms() - oldest_ms > limit_ms:
                self._end(session, calls.overdue_error(session.url, limit_ms))
                stream.cancel()

    def cancelled(self, session: ProduceSession) -> None:
        self._stopped(f"a task that reads the answers of {session.url} was cancelled")

    def _hear(self, session: ProduceSession, news: list[Outcome]) -> None:
        with self._guard:
            for outcome in news:
                if isinstance(outcome, Refused):
                    owner, channel, _ = self._channels.get(outcome.partition, (None, None, None))
                    if owner is not None and channel is not None and not owner.is_open(channel):
                        del self._channels[outcome.partition]
        if news:
            self._tell(news)
