"""A session as a producer uses it: on each channel batches in flight. No I/O.

    open ──> produce, any number ──> Arrived for each, in their order
                  └──> Refused: the channel is over, with all that it has not answered

After the first failure a channel answers nothing more, so what comes back in `Refused` is a run of batches from the
first that is not done on: sent again in that order, none of them overtakes another. Called by `produce_sessions` and
`async_produce_sessions`, under a lock or on a loop.
"""

from collections import deque
from dataclasses import field
from typing import NamedTuple, TypeAlias

from headrace.client.batches import Batch
from headrace.client.calls import Buffers
from headrace.client.record import TopicPartition
from headrace.client.session import LeaderSession
from headrace.core.errors import (
    BrokenSessionError,
    HeadraceError,
    NotLeaderError,
    RemoteError,
    RequestTimedOutError,
    StorageFailedError,
)
from headrace.core.limits import LEADER_SILENT_MS
from headrace.core.log.epochs import NO_EPOCH
from headrace.core.session.messages import BrokerMessage, OpenProduce, Produce, Produced
from headrace.core.session.terms import ProduceTerms
from headrace.core.slotted import dataclass


class Arrived(NamedTuple):
    """It is as safe as its acks ask for."""

    batch: Batch
    base_offset: int


class Refused(NamedTuple):
    """A channel is over, or a request has failed. The error is that of the first batch; those behind it go after it."""

    partition: TopicPartition
    error: HeadraceError
    batches: list[Batch]
    may_be_written: bool
    """Else none of them is, by this attempt, nor ever will be."""

    @classmethod
    def request(cls, batch: Batch, error: HeadraceError) -> "Refused":
        return cls(batch.partition, error, [batch], _leaves_open(error))


Outcome: TypeAlias = Arrived | Refused

_LEAVE_OPEN = (NotLeaderError, StorageFailedError, RequestTimedOutError)


def _leaves_open(error: HeadraceError) -> bool:
    """Whether what a broker answers so may be written all the same (docs/protocol.md, "Problems")."""
    is_brokers = isinstance(error, RemoteError) and type(error) is not RemoteError
    return not is_brokers or isinstance(error, _LEAVE_OPEN)


@dataclass(slots=True, eq=False)
class ProduceChannel:
    number: int
    partition: TopicPartition
    leader_epoch: int
    pending: deque[Batch] = field(default_factory=deque)
    """Sent and not answered, in order."""
    sent: int = 0

    def produce(self, batch: Batch, encoded: Buffers) -> list[bytes | bytearray | memoryview]:
        self.pending.append(batch)
        self.sent += 1
        return Produce(self.number, self.sent, encoded).buffers()


class ProduceSession(LeaderSession[ProduceChannel, Outcome]):
    def open(self, partition: TopicPartition, terms: ProduceTerms) -> tuple[ProduceChannel, bytes]:
        """The channel, and what to send. Raises the error of a session that is over."""
        channel = ProduceChannel(self._number(), partition, terms.fence.leader_epoch or NO_EPOCH)
        self._channels[channel.number] = channel
        return channel, OpenProduce(channel.number, terms).pack()

    def oldest_ms(self) -> int | None:
        """When the batch was sent that waits longest for its answer."""
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
        # What ends the whole session says nothing of its channels.
        may_be_written = self.error is not None or _leaves_open(error)
        return [Refused(channel.partition, error, list(channel.pending), may_be_written)]
