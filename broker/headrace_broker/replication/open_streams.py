"""The replication streams that followers have open here, two for each broker; and the metrics of all such streams.

    unknown ── HELLO ──> introduced ── another one of the same broker and role ──> cut off
       └── too many are, or for too long ──> the oldest is cut off, of the address that has most

No load of clients keeps a follower out, so anybody may open a stream: streams without an introduction have a bound of
their own, and a broker must have a Lease to be introduced. A second stream of a broker takes the place of the first,
whose connection is lost and nobody has noticed yet; none of them holds up a stop. One per process; bytes on all streams
are counted in a budget of their own, so that no load of clients ever keeps a vote from its leader.

`StreamMetrics` is what Prometheus is told of both sides, under `headrace_broker_replication_*`. One per process.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from headrace.core.errors import HeadraceError, NotReadyError
from headrace.core.frames.replication_messages import StreamRole
from headrace.core.replication.leader_stream import Throttle
from headrace.core.types import BrokerId
from headrace_broker.admission import Budget
from headrace_broker.metrics import Registration

REPLICATION_STREAMS_UNKNOWN_MAX = 64
"""The streams without HELLO; one more ends the oldest. Of the others each broker has one of each role."""
REPLICATION_DRAIN_MS = 2_000
"""A broker that stops goes on replicating for so long at most where clients wait for their acknowledgement."""
REPLICATION_DRAIN_LOOK_MS = 20
"""The interval in which a stopping broker checks whether anybody waits."""
REPLICATION_BYTES_HELD_MAX = 64 << 20
"""The bytes of batches on their way to followers that a broker holds at one time, apart from those for its clients."""


class StreamMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        made = Registration(registry)
        self._registry = registry
        self.unknown = made.gauge(
            "headrace_broker_replication_unknown_streams",
            "Streams open here whose followers have not said who they are.",
        )
        self.bytes_in = made.counter("headrace_broker_replication_bytes_in", "Bytes of batches received from leaders.")
        self.bytes_out = made.counter("headrace_broker_replication_bytes_out", "Bytes of batches sent to followers.")
        self.connects = made.counter(
            "headrace_broker_replication_connects",
            "Streams to leaders that were tried, by outcome: ended, once they are over, or failed.",
            "outcome",
            values=("ended", "failed"),
        )
        self.moves = made.counter(
            "headrace_broker_replication_moves",
            "Partitions that left one stream for the other: live when far behind, catchUp when they have caught up.",
            "lane",
            values=StreamRole,
        )
        self.refused = made.counter(
            "headrace_broker_replication_refused",
            "Partitions that a leader could not send, by code of the problem.",
            "code",
        )
        self.broken = made.counter(
            "headrace_broker_replication_broken",
            "Partitions whose follower could not use what it was sent, by code of the problem.",
            "code",
        )

    def watch_followed(self, count: Callable[[StreamRole], int]) -> None:
        """Read with each scrape how many partitions are followed on streams of a role."""
        self._registry.register(_Followed(count))

    def watch_served(
        self, channels: Callable[[], Iterable[tuple[BrokerId, StreamRole]]], lag: Callable[[], Mapping[BrokerId, int]]
    ) -> None:
        """Read with each scrape which streams are served, and how many records each follower lacks."""
        self._registry.register(_Served(channels, lag))


class _Followed(Collector):
    def __init__(self, count: Callable[[StreamRole], int]) -> None:
        self._count = count

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            "headrace_broker_replication_followed",
            "Partitions that this broker follows on open streams, by role: live, or catchUp where it is far behind.",
            labels=("lane",),
        )
        for role in StreamRole:
            family.add_metric([role.value], self._count(role))
        yield family


class _Served(Collector):
    def __init__(
        self, streams: Callable[[], Iterable[tuple[BrokerId, StreamRole]]], lag: Callable[[], Mapping[BrokerId, int]]
    ) -> None:
        self._streams = streams
        self._lag = lag

    def collect(self) -> Iterator[GaugeMetricFamily]:
        served = GaugeMetricFamily(
            "headrace_broker_replication_streams", "Streams that followers have open here.", labels=("follower", "lane")
        )
        for follower, role in self._streams():
            served.add_metric([str(follower), role.value], 1)
        yield served
        lacking = GaugeMetricFamily(
            "headrace_broker_follower_lag_records",
            "Records of the partitions led here that a follower has not reported yet, as far as it has a stream.",
            labels=("follower",),
        )
        for follower, records in self._lag().items():
            lacking.add_metric([str(follower)], records)
        yield lacking


class OpenStream(Protocol):
    """A stream, as far as the others are concerned."""

    @property
    def lag(self) -> int:
        """Return the number of records that its follower has not reported."""

    @property
    def is_awaited(self) -> bool:
        """Return whether clients wait for what its follower reports."""

    def end(self, why: HeadraceError) -> None: ...


class ServedStreams:
    def __init__(self, metrics: StreamMetrics, catch_up_rate: int | None = None) -> None:
        """Begin without streams; `catch_up_rate` is in bytes a second for all far behind, None sets no limit."""
        self.metrics = metrics
        self.budget = Budget("batches for followers", REPLICATION_BYTES_HELD_MAX)
        self.throttles = {StreamRole.LIVE: Throttle(None), StreamRole.CATCH_UP: Throttle(catch_up_rate)}
        self._tasks: dict[OpenStream, asyncio.Task[Any]] = {}
        self._unknown: dict[OpenStream, str] = {}
        """The streams without HELLO, and the address that each comes from; the oldest first."""
        self._open: dict[tuple[BrokerId, StreamRole], OpenStream] = {}
        self._draining: HeadraceError | None = None
        metrics.watch_served(lambda: self._open, self._lag)
        metrics.unknown.set_function(lambda: len(self._unknown))

    @property
    def open(self) -> int:
        return len(self._tasks)

    @contextmanager
    def one_more(self, stream: OpenStream, source: str = "") -> Iterator[None]:
        """A context around the handling of a stream, by the task that handles it. Raises NotReadyError."""
        if self._draining is not None:
            raise self._draining
        task = asyncio.current_task()
        assert task is not None, "handlers run as tasks"
        if len(self._unknown) >= REPLICATION_STREAMS_UNKNOWN_MAX:
            sources = Counter(self._unknown.values())
            oldest = max(self._unknown, key=lambda each: sources[self._unknown[each]])
            self.cut_off(oldest, "too many streams have not said whose they are")
        self._tasks[stream] = task
        self._unknown[stream] = source
        try:
            yield
        finally:
            del self._tasks[stream]
            self._unknown.pop(stream, None)
            for name in [name for name, each in self._open.items() if each is stream]:
                del self._open[name]

    def introduce(self, stream: OpenStream, broker: BrokerId, role: StreamRole) -> None:
        """Count a stream as its broker's: HELLO has come."""
        self._unknown.pop(stream, None)
        before = self._open.get((broker, role))
        self._open[broker, role] = stream
        if before is not None:
            self.cut_off(before, f"broker {broker} has opened another stream")

    def cut_off(self, stream: OpenStream, why: str) -> None:
        """Cut a stream off that nobody reads any more: its last message would never leave."""
        self._unknown.pop(stream, None)
        stream.end(NotReadyError(why))
        self._tasks[stream].cancel(why)

    def drain(self) -> None:
        """End all streams, because this broker is about to stop; those that acknowledgements wait for end a bit
        later."""
        self._draining = NotReadyError("this broker stops: follow whoever leads then")
        self._end(self._draining, asyncio.get_running_loop().time() + REPLICATION_DRAIN_MS / 1000)

    def _end(self, why: HeadraceError, deadline_s: float) -> None:
        loop = asyncio.get_running_loop()
        is_late = loop.time() >= deadline_s
        for stream in tuple(self._tasks):
            if is_late or not stream.is_awaited:
                stream.end(why)
        if any(stream.is_awaited for stream in self._tasks):
            loop.call_later(REPLICATION_DRAIN_LOOK_MS / 1000, self._end, why, deadline_s)

    def _lag(self) -> Counter[BrokerId]:
        lag = Counter[BrokerId]()
        for (broker, _), stream in self._open.items():
            lag[broker] += stream.lag
        return lag
