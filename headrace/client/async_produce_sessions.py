"""The sessions of an asyncio producer. Each outcome is told once, to `tell`, on the loop."""

from collections.abc import Callable

from headrace.client import calls
from headrace.client.async_brokers import AsyncBrokers
from headrace.client.async_sessions import AsyncSessions
from headrace.client.batches import Batch
from headrace.client.calls import Buffers
from headrace.client.clock import now_ms
from headrace.client.produce_session import Outcome, ProduceChannel, ProduceSession
from headrace.client.record import TopicPartition
from headrace.http2.client import AsyncStream


class AsyncProduceSessions(AsyncSessions[ProduceSession]):
    def __init__(
        self,
        brokers: AsyncBrokers,
        acks: str,
        tell: Callable[[list[Outcome]], None],
        stopped: Callable[[str], None],
    ) -> None:
        """`stopped` hears, in a sentence, that somebody from outside has ended the reading of answers."""
        super().__init__(brokers, ProduceSession)
        self._acks, self._tell, self._stopped = acks, tell, stopped
        self._channels: dict[TopicPartition, tuple[ProduceSession, ProduceChannel, AsyncStream]] = {}

    def has_channel(self, partition: TopicPartition) -> bool:
        session, channel, _ = self._channels.get(partition, (None, None, None))
        return session is not None and channel is not None and session.is_open(channel)

    def produce(self, batch: Batch, encoded: Buffers) -> None:
        """Send it on the channel of its partition, which `has_channel`."""
        _, channel, stream = self._channels[batch.partition]
        stream.send(*channel.produce(batch, encoded))

    async def open(self, batch: Batch, encoded: Buffers) -> bool:
        """Send it as the first of a new channel; may connect. False: only requests lead to its partition just now."""
        partition = batch.partition
        layout = await self._brokers.layout_with(partition)
        url = self._leader_url(layout, partition.partition)
        if url is None:
            return False
        session, stream = await self._session(url)
        timeout_ms = self._brokers.request_timeout_ms
        terms = calls.produce_terms(self._brokers.namespace, layout, partition.partition, self._acks, timeout_ms)
        channel, opening = session.open(partition, terms)
        self._channels[partition] = (session, channel, stream)
        stream.send(opening, *channel.produce(batch, encoded))
        return True

    def end_overdue(self) -> None:
        """Give up the sessions in which an answer is missing for longer than its time limit."""
        limit_ms = self._brokers.request_timeout_ms + calls.ANSWER_SLACK_MS
        for session, stream in list(self._streams.values()):
            oldest_ms = session.oldest_ms()
            if oldest_ms is not None and now_ms() - oldest_ms > limit_ms:
                self._end(session, calls.overdue_error(session.url, limit_ms))
                stream.cancel()

    def _hear(self, session: ProduceSession, news: list[Outcome]) -> None:
        if news:
            self._tell(news)

    def _cancelled(self, session: ProduceSession) -> None:
        self._stopped(f"a task that reads the answers of {session.url} was cancelled")
