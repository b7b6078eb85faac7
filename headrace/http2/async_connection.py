"""One connection of the asyncio transport: its socket on one side, its exchanges on the other.

Owned by an `AsyncTransport` from its connecting until it is lost or closed, and used from its event loop alone. What
callers and the socket give is written once per turn of the loop.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

from headrace.core import limits
from headrace.core.errors import HeadraceError
from headrace.http2.events import RemoteProtocolError
from headrace.http2.exchange import Exchange, Exchanges
from headrace.http2.gathered import write_gathered
from headrace.http2.origin import Origin, Request
from headrace.http2.output import Buffer
from headrace.http2.read_memory import ReadMemory
from headrace.http2.trust import lost_reason
from headrace.http2.writing_turns import WritingTurns

_CLOSE_TIMEOUT_S = 1.0
"""What a server gets to take our last bytes."""


class WaitableExchange(Exchange):
    """An exchange that one task can wait for."""

    __slots__ = ("waiter",)

    def __init__(self, request: Request, body: Sequence[Buffer]) -> None:
        super().__init__(request, body, self._wake)
        self.waiter: asyncio.Future[None] | None = None

    def _wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


class Connection(WritingTurns):
    def __init__(self, origin: Origin) -> None:
        super().__init__()
        self._origin = origin
        self._exchanges = Exchanges(origin.authority)
        self._memory = ReadMemory()
        self._heard = False
        self.on_lost: Callable[[Connection], None] = lambda connection: None

    # -- what the transport asks ---------------------------------------------------------------------------------

    @property
    def is_usable(self) -> bool:
        return self._exchanges.is_usable and not self.is_lost

    @property
    def is_lost(self) -> bool:
        return self._lost.is_set()

    def start(self, exchange: Exchange) -> None:
        self._exchanges.start(exchange)
        self._schedule_flush()

    def send(self, exchange: Exchange, buffers: Sequence[Buffer], *, ended: bool) -> None:
        self._exchanges.send(exchange, buffers, ended=ended)
        self._schedule_flush()

    def take(self, exchange: Exchange) -> list[Any]:
        chunks = self._exchanges.take(exchange)
        if chunks:
            self._schedule_flush()
        return chunks

    async def wait(self, exchange: WaitableExchange, timeout_s: float | None) -> None:
        """Until the exchange changes. Raises `BrokerUnreachableError` on time-out; that and cancellation reset it."""
        try:
            await self._changed(exchange, timeout_s)
        except TimeoutError:
            raise self.cancel(exchange, f"did not answer within {timeout_s:g} s") from None
        except asyncio.CancelledError:
            self.cancel(exchange, "was not waited for")
            raise

    async def receive(self, exchange: WaitableExchange, timeout_s: float | None) -> list[Any]:
        """What has arrived, waited for; empty when it is over. A TimeoutError or a cancellation changes nothing."""
        while not (chunks := self.take(exchange)) and not exchange.is_over:
            await self._changed(exchange, timeout_s)
        return chunks

    async def _changed(self, exchange: WaitableExchange, timeout_s: float | None) -> None:
        exchange.waiter = self._loop.create_future()
        try:
            async with asyncio.timeout(timeout_s):
                await exchange.waiter
        finally:
            exchange.waiter = None

    def cancel(self, exchange: Exchange, reason: str) -> HeadraceError:
        error = self._exchanges.cancel(exchange, reason)
        self._schedule_flush()
        return error

    def close_when_idle(self) -> None:
        """Of a connection that is not usable any more."""
        self._maybe_close()

    async def close(self) -> None:
        self._exchanges.close()
        self._exchanges.fail("was left: this client closed")
        self._flush()
        self._transport.close()
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._lost.wait()
        except TimeoutError:
            self._transport.abort()
            await self._lost.wait()

    # -- asyncio's side ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=limits.H2_WRITE_BYTES)
        self._schedule_flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._memory.room()

    def buffer_updated(self, nbytes: int) -> None:
        self._heard = True
        try:
            self._exchanges.receive_data(self._memory.received(nbytes), int(self._loop.time() * 1000))
        except RemoteProtocolError:
            self._flush()
            self._transport.close()
        else:
            self._memory.handled(self._exchanges.kept)
            self._schedule_flush()
            self._maybe_close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost.set()
        self._exchanges.fail(f"{lost_reason(self._origin, heard=self._heard)}{f': {exc}' if exc else ''}")
        self.on_lost(self)

    def _maybe_close(self) -> None:
        if not self._exchanges.is_usable and self._exchanges.is_idle:
            self._transport.close()

    def _write_some(self, limit: int) -> bool:
        buffers = self._exchanges.data_to_send(limit)
        if buffers:
            write_gathered(self._transport, buffers)
        return bool(buffers)
