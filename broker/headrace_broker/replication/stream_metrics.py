"""What Prometheus is told of replication streams, under `headrace_broker_replication_*`. One per process."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from headrace.core.frames.replication_messages import Lane
from headrace.core.types import BrokerId
from headrace_broker.registration import Registration


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
            "Partitions that left a lane for the other: live as they were far behind, catchUp as they have caught up.",
            "lane",
            values=Lane,
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

    def watch_followed(self, count: Callable[[Lane], int]) -> None:
        """Read with each scrape how many partitions are followed on streams of that lane."""
        self._registry.register(_Followed(count))

    def watch_served(
        self, channels: Callable[[], Iterable[tuple[BrokerId, Lane]]], lag: Callable[[], Mapping[BrokerId, int]]
    ) -> None:
        """Read with each scrape which streams are served, and how many records each follower lacks."""
        self._registry.register(_Served(channels, lag))


class _Followed(Collector):
    def __init__(self, count: Callable[[Lane], int]) -> None:
        self._count = count

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            "headrace_broker_replication_followed",
            "Partitions that this broker follows on open streams, by lane: live, or catchUp where it is far behind.",
            labels=("lane",),
        )
        for lane in Lane:
            family.add_metric([lane.value], self._count(lane))
        yield family


class _Served(Collector):
    def __init__(
        self, streams: Callable[[], Iterable[tuple[BrokerId, Lane]]], lag: Callable[[], Mapping[BrokerId, int]]
    ) -> None:
        self._streams = streams
        self._lag = lag

    def collect(self) -> Iterator[GaugeMetricFamily]:
        served = GaugeMetricFamily(
            "headrace_broker_replication_streams", "Streams that followers have open here.", labels=("follower", "lane")
        )
        for follower, lane in self._streams():
            served.add_metric([str(follower), lane.value], 1)
        yield served
        lacking = GaugeMetricFamily(
            "headrace_broker_follower_lag_records",
            "Records of the partitions led here that a follower has not reported yet, as far as it has a stream.",
            labels=("follower",),
        )
        for follower, records in self._lag().items():
            lacking.add_metric([str(follower)], records)
        yield lacking
