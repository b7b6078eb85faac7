"""How those who sent records hear of them, in programs with an event loop: real `asyncio.Future`s.

Made and finished on the producer's loop. What is sent cannot be called back: cancelling one, or the task that awaits
it, ends the waiting alone, and should its record fail, `flush` says so.
"""

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context
from dataclasses import dataclass, field
from itertools import count, repeat
from typing import Any, Self, TypeVar

from headrace.client.batches import Row, RowBatch
from headrace.client.record import RecordMetadata
from headrace.core.errors import HeadraceError

T = TypeVar("T")


class AsyncDelivery(asyncio.Future[T]):
    """A future that knows whether anybody asked for it: `flush` raises the failures that nobody has looked at."""

    looked_at = False
    """Somebody has asked, or waits."""
    has_callbacks = False
    """The loop calls them, in its own time."""

    def __await__(self) -> Generator[Any, None, T]:
        self.looked_at = True
        return super().__await__()

    def result(self) -> T:
        self.looked_at = True
        return super().result()

    def exception(self) -> BaseException | None:
        self.looked_at = True
        return super().exception()

    def add_done_callback(self, fn: Callable[[Self], object], /, *, context: Context | None = None) -> None:
        self.looked_at = True
        super().add_done_callback(fn, context=context)

    @property
    def is_overlooked(self) -> bool:
        """Whoever cancelled it will not see a failure either."""
        return self.cancelled() or not self.looked_at

    def set_exception(self, exception: Any, /) -> None:
        super().set_exception(exception)
        super().exception()  # Not asyncio, at the future's end, but `flush` reports what nobody has looked at.


@dataclass(slots=True, eq=False)
class LoopRows(RowBatch):
    deliveries: list[AsyncDelivery[RecordMetadata]] = field(default_factory=list)
    """Of each row."""
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    def add(self, row: Row) -> AsyncDelivery[RecordMetadata]:
        delivery: AsyncDelivery[RecordMetadata] = AsyncDelivery(loop=self.loop)
        self.append(row)
        self.deliveries.append(delivery)
        return delivery

    def delivered(self, base_offset: int) -> None:
        topic, partition = self.partition
        offsets = repeat(-1) if base_offset < 0 else count(base_offset)
        written = map(RecordMetadata, repeat(topic, self.record_count), repeat(partition), offsets)
        for delivery, metadata in zip(self.deliveries, written, strict=True):
            if not delivery.done():
                delivery.set_result(metadata)

    def failed(self, error: HeadraceError) -> None:
        for delivery in self.deliveries:
            if not delivery.done():
                delivery.set_exception(error)

    def overlooked(self) -> int:
        return sum(delivery.is_overlooked for delivery in self.deliveries)
