"""A request whose body and response go on side by side, as a caller sees it: the same on threads and on a loop.

The base of `blocking.BlockingStream` and `client.AsyncStream`, which differ in how they wait. It owns nothing: the
connection carries the stream, and the exchange keeps what has come of it.
"""

from collections.abc import Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from headrace.http2.exchange import Exchange
from headrace.http2.output import Buffer


class Carrier(Protocol):
    """A connection."""

    def send(self, exchange: Exchange, buffers: Sequence[Buffer], *, ended: bool) -> None: ...

    def cancel(self, exchange: Exchange, reason: str) -> object: ...


C = TypeVar("C", bound=Carrier)
E = TypeVar("E", bound=Exchange)


class OpenStream(Generic[C, E]):
    def __init__(self, connection: C, exchange: E) -> None:
        self._connection = connection
        self._exchange = exchange

    @property
    def status(self) -> int:
        """0 until the head of the response is there: at the latest when `receive` has returned."""
        return self._exchange.status

    @property
    def headers(self) -> Mapping[str, str]:
        """By lower-case name; empty until the head is there."""
        return self._exchange.headers

    def send(self, *buffers: Buffer, ended: bool = False) -> None:
        """Send these, and with `ended` nothing more. Never waits; the buffers must not change until they are sent.

        What a stream that is over was given is dropped: `receive` says why.
        """
        self._connection.send(self._exchange, buffers, ended=ended)

    def cancel(self) -> None:
        """Reset the stream; `receive` then raises."""
        self._connection.cancel(self._exchange, "was told to stop")
