"""The streams that followers have open here: one for each broker and lane, and none of them holds up a stop.

A second one of the same broker takes the place of the first, whose connection is lost and nobody has noticed yet. One
per process; what is sent over all streams is counted in a budget of its own, so that no load of clients ever keeps a
vote from its leader.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from headrace.core.errors import HeadraceError, NotReadyError
from headrace.core.limits import REPLICATION_BYTES_HELD_MAX, REPLICATION_DRAIN_MS
from headrace.core.replication.wire.messages import Lane
from headrace.core.replication.wire.throttle import Throttle
from headrace.core.types import BrokerId
from headrace_broker.admission import Budget
from headrace_broker.replication.stream_metrics import StreamMetrics

_LOOK_S = 0.02
"""While acknowledgements are waited for."""


class OpenStream(Protocol):
    """A stream, as far as the others are concerned."""

    @property
    def lag(self) -> int:
        """Records that its follower has not reported."""

    @property
    def is_awaited(self) -> bool:
        """Clients wait for what its follower reports."""

    def end(self, why: HeadraceError) -> None: ...


class ServedStreams:
    def __init__(self, metrics: StreamMetrics, catch_up_rate: int | None = None) -> None:
        """`catch_up_rate`: bytes a second for all who are far behind; None: as fast as it goes."""
        self.metrics = metrics
        self.budget = Budget("batches for followers", REPLICATION_BYTES_HELD_MAX)
        self.throttles = {Lane.LIVE: Throttle(None), Lane.CATCH_UP: Throttle(catch_up_rate)}
        self._tasks: dict[OpenStream, asyncio.Task[Any]] = {}
        self._open: dict[tuple[BrokerId, Lane], OpenStream] = {}
        self._draining: HeadraceError | None = None
        metrics.watch_served(lambda: self._open, self._lag)

    @property
    def open(self) -> int:
        return len(self._tasks)

    @contextmanager
    def one_more(self, stream: OpenStream) -> Iterator[None]:
        """Around the handling of one, by the task that handles it. Raises NotReadyError."""
        if self._draining is not None:
            raise self._draining
        task = asyncio.current_task()
        assert task is not None, "handlers run as tasks"
        self._tasks[stream] = task
        try:
            yield
        finally:
            del self._tasks[stream]
            for name in [name for name, each in self._open.items() if each is stream]:
                del self._open[name]

    def introduce(self, stream: OpenStream, broker: BrokerId, lane: Lane) -> None:
        """It has said whose it is."""
        before = self._open.get((broker, lane))
        self._open[broker, lane] = stream
        if before is not None:
            self.cut_off(before, f"broker {broker} has opened another stream")

    def cut_off(self, stream: OpenStream, why: str) -> None:
        """Nobody reads it any more: its last word would never leave."""
        stream.end(NotReadyError(why))
        self._tasks[stream].cancel(why)

    def drain(self) -> None:
        """This broker is about to stop: streams end, those that acknowledgements wait for a little later."""
        self._draining = NotReadyError("this broker stops: follow whoever leads then")
        self._end(self._draining, asyncio.get_running_loop().time() + REPLICATION_DRAIN_MS / 1000)

    def _end(self, why: HeadraceError, deadline_s: float) -> None:
        loop = asyncio.get_running_loop()
        is_late = loop.time() >= deadline_s
        for stream in tuple(self._tasks):
            if is_late or not stream.is_awaited:
                stream.end(why)
        if any(stream.is_awaited for stream in self._tasks):
            loop.call_later(_LOOK_S, self._end, why, deadline_s)

    def _lag(self) -> Counter[BrokerId]:
        lag = Counter[BrokerId]()
        for (broker, _), stream in self._open.items():
            lag[broker] += stream.lag
        return lag
