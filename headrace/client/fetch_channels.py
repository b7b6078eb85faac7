"""Which session serves each partition of a consumer, on which channel. No I/O, no lock: the shells bring both.

    open ──> serving ──ask where it goes on──> serving
                ├── ask of a time before the reader moved ──> serving (nobody wants the answer)
                ├── ask from somewhere else ──> closed and gone      (the reader has moved)
                ├── ask that is answered with an error ──> gone      (refused, not the leader any more, session over)
                ├── dropped: the partition is not read any more ──> closed and gone
                └── over, and nothing of it is left to hand out ──> gone

What is gone is never asked again: the next ask of that partition finds nothing, and whoever asked opens a channel with
the leader of that time. Invariants: a partition has one channel at most; news of a channel that was replaced do nothing
to the one that replaced it; what a step has to say to the broker is given out with it, to be sent before the next step.
Called by `fetch_sessions` under its lock, and by `async_fetch_sessions` on its loop.
"""

from collections.abc import Iterable
from typing import Generic, TypeAlias, TypeVar

from headrace.client.cursor import Ask
from headrace.client.fetch_session import FetchChannel, FetchSession
from headrace.client.read_ahead import Answered
from headrace.client.record import TopicPartition
from headrace.core.errors import HeadraceError
from headrace.core.session.terms import FetchTerms

S = TypeVar("S")
"""What a shell sends by."""


Asked: TypeAlias = tuple[bool, Answered | None, S, bytes]
"""What came of an ask: whether it is taken, else the channel was closed; the answer, where it was there already; the
stream, and what to send by it, often nothing. Made for each ask, so a tuple."""


class FetchChannels(Generic[S]):
    def __init__(self) -> None:
        self._channels: dict[TopicPartition, tuple[FetchSession, FetchChannel, S]] = {}

    def ask(self, ask: Ask) -> Asked[S] | None:
        """On the channel of its partition. None: there is none."""
        partition = ask.cursor.partition
        serving = self._channels.get(partition)
        if serving is None:
            return None
        session, channel, stream = serving
        if not ask.is_current():  # It came late: the channel may be that of its successor already.
            return True, None, stream, b""
        if not channel.goes_on_with(ask):
            session.close(channel)
            del self._channels[partition]
            return False, None, stream, session.outgoing()
        answered = session.ask(channel, ask)
        if answered is not None and isinstance(answered.outcome, HeadraceError):
            del self._channels[partition]
        return True, answered, stream, session.outgoing()

    def drop(self, partition: TopicPartition) -> tuple[S, bytes] | None:
        """Its partition is not read any more. By what to say so to the broker; None: it has no channel."""
        serving = self._channels.pop(partition, None)
        if serving is None:
            return None
        session, channel, stream = serving
        session.close(channel)
        return stream, session.outgoing()

    def open(self, ask: Ask, session: FetchSession, stream: S, terms: FetchTerms) -> bytes:
        """Ask on a new channel; what to send by `stream`. Raises the error of a session that is over.

        Nothing where somebody has moved on meanwhile: nobody wants the answer any more.
        """
        if not ask.is_current():
            return b""
        self._channels[ask.cursor.partition] = (session, session.open(ask, terms), stream)
        return session.outgoing()

    def hear(self, news: Iterable[Answered]) -> None:
        """What sessions have said: channels that are over are gone once nothing of them is left to hand out."""
        for answered in news:
            partition = answered.ask.cursor.partition
            serving = self._channels.get(partition)
            if serving is not None:
                session, channel, _ = serving
                if not session.is_open(channel) and not channel.arrived:
                    del self._channels[partition]
