"""The channels of one session: opens them, hands frames to them, says their last words.

`on_empty` is called whenever the last channel is gone. Owned by a `Session`, for its lifetime.
"""

import asyncio
from collections.abc import Callable

from headrace.core.errors import BrokenSessionError, HeadraceError
from headrace.core.frames.frame import Frame, Kind
from headrace.core.frames.session_messages import (
    ChannelNumbering,
    Close,
    Closed,
    Credit,
    Failed,
    Opened,
    OpenFetch,
    OpenProduce,
    Produce,
    client_message,
)
from headrace_broker.requests import Place, ProduceQuery
from headrace_broker.serving import Serving
from headrace_broker.session.fetching import FetchChannel
from headrace_broker.session.hold import Hold
from headrace_broker.session.outgoing import Outgoing
from headrace_broker.session.producing import ProduceChannel

Channel = ProduceChannel | FetchChannel


class Channels:
    def __init__(self, serving: Serving, outgoing: Outgoing, on_empty: Callable[[], None]) -> None:
        self._serving = serving
        self._outgoing = outgoing
        self._on_empty = on_empty
        self._numbering = ChannelNumbering()
        self._open: dict[int, Channel] = {}
        self._collecting: dict[ProduceChannel, None] = {}
        """Those that may have something to append."""
        self._checking: asyncio.Task[None] | None = None
        self._refusal: HeadraceError | None = None
        """Why no more are opened."""

    def __len__(self) -> int:
        return len(self._open)

    @property
    def is_pending(self) -> bool:
        """Somebody waits for an answer to a produce."""
        return any(channel.is_pending for channel in self._open.values())

    @property
    def is_checking(self) -> bool:
        """A produce takes long to check: no frame is to be served before that is done."""
        return self._checking is not None and not self._checking.done()

    async def checked(self) -> None:
        """Wait until nothing is being checked."""
        if self._checking is not None:
            await asyncio.wait([self._checking])
            self._checking = None

    def serve(self, frame: Frame) -> None:
        """Raises BrokenSessionError. What is produced is appended with the next `flush`."""
        if frame.kind in (Kind.OPEN_PRODUCE, Kind.OPEN_FETCH):
            self._begin(frame)
            return
        message, channel = client_message(frame), self._open.get(frame.channel)
        match message:
            case _ if channel is None:
                self._numbering.check_was_opened(frame.channel)
            case Produce() if isinstance(channel, ProduceChannel):
                channel.collect(message)
                self._collecting[channel] = None
                self._checking = channel.checking
            case Credit() if isinstance(channel, FetchChannel):
                channel.add_credit(message.nbytes)
            case Close():
                channel.close()
            case _:
                raise BrokenSessionError(
                    f"channel {frame.channel} is no channel for {Kind(frame.kind).name}: open another one for it"
                )

    def flush(self) -> None:
        for channel in self._collecting:
            channel.flush()
        self._collecting.clear()

    def close(self) -> None:
        """The client wants no more of any."""
        for channel in tuple(self._open.values()):
            channel.close()

    def fail(self, why: HeadraceError) -> None:
        """Each as soon as what was produced is answered; no more are opened."""
        self._refusal = why
        for channel in tuple(self._open.values()):
            channel.fail(why)

    def leave(self) -> None:
        """The session is over: nobody listens any more."""
        for channel in self._open.values():
            channel.leave()
        self._open.clear()
        self._collecting.clear()

    def _begin(self, frame: Frame) -> None:
        try:
            self._numbering.take(frame.channel, len(self._open))
            if self._refusal is not None:
                raise self._refusal
            opened = self._opened(client_message(frame))
        except BrokenSessionError:
            raise
        except HeadraceError as error:
            self._say_last(Failed(frame.channel, error))
        else:
            self._outgoing.say(opened.pack())

    def _opened(self, opening: object) -> Opened:
        match opening:
            case OpenProduce(number, terms):
                self._serving.check_writable(terms.topic, stages=True)
                hold = Hold.take(self._serving, Place(terms.topic, terms.partition), terms.fence)
                opened = Opened(number, hold.standing())
                query = ProduceQuery(terms.acks, terms.timeout_ms, hold.fence)
                self._open[number] = ProduceChannel(number, hold, query, self._outgoing, self._over)
            case OpenFetch(number, terms):
                self._serving.check_readable(terms.topic)
                hold = Hold.take(self._serving, Place(terms.topic, terms.partition), terms.fence)
                channel = FetchChannel(number, hold, terms, self._outgoing, self._over)
                opened = Opened(number, hold.standing(channel.offset))
                self._open[number] = channel
            case _:
                raise AssertionError("one of the two")
        self._open[number].begin()
        return opened

    def _over(self, last_word: Failed | Closed) -> None:
        self._open.pop(last_word.channel).leave()
        self._say_last(last_word)

    def _say_last(self, last_word: Failed | Closed) -> None:
        if isinstance(last_word, Failed):
            self._serving.metrics.errors.labels(last_word.error.code).inc()
        self._outgoing.say(last_word.pack())
        if not self._open:
            self._on_empty()
