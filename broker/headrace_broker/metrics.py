"""The metrics of a broker process, for Prometheus: names begin with `headrace_broker_`.

Counters and histograms are kept as things happen; the state of a partition (sizes, offsets, the leader) is read when it
is scraped. One `Metrics` per process, made at its start. A partition keeps its own labelled counters, so that the data
path never looks labels up. `Registration` makes all metrics of the process in one registry, under their whole names, so
that each can be searched for; sessions, replication, the cluster and coordinators register theirs through it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from headrace.core.log.disk_quota import DiskBudget
from headrace.core.log.retention import ExpiryReason
from headrace.core.replication.leadership import Redundancy
from headrace.core.types import Offset, PartitionId, TopicName
from headrace_broker.admission import Admission

_PARTITION_LABELS = ("namespace", "topic", "partition")
_TRAFFIC = {
    "bytes_in": "Bytes of batches appended.",
    "records_in": "Records appended.",
    "batches_in": "Batches appended.",
    "batches_repeated": "Batches that idempotent producers have sent again, and that were there.",
    "records_overdue": "Records appended that were older than their topic's retention.time: they are deleted at once.",
    "records_ahead": "Records appended whose time was more than an hour ahead.",
    "bytes_out": "Bytes of batches read by fetches.",
    "records_out": "Records read by fetches.",
    "batches_out": "Batches read by fetches.",
}
_REQUEST_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_FSYNC_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)


class Registration:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry

    def counter(self, name: str, text: str, *labels: str, values: Iterable[str] = ()) -> Counter:
        """Make a counter; `values` of its one label are shown as 0 from the start, so that a zero differs from a
        missing series."""
        counter = Counter(name, text, labels, registry=self.registry)
        for value in values:
            counter.labels(value)
        return counter

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def histogram(self, name: str, text: str, *labels: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)


@dataclass(frozen=True, slots=True)
class PartitionGauges:
    """One partition as it is at the moment of a scrape."""

    topic: TopicName
    partition: PartitionId
    leads: bool
    log_bytes: int
    log_start_offset: Offset
    log_end_offset: Offset
    high_watermark: Offset
    redundancy: Redundancy | None = None
    """The redundancy of a partition that is led here."""


@dataclass(frozen=True, slots=True)
class PartitionCounters:
    bytes_in: Counter
    records_in: Counter
    batches_in: Counter
    batches_repeated: Counter
    records_overdue: Counter
    records_ahead: Counter
    bytes_out: Counter
    records_out: Counter
    batches_out: Counter


class Connections(Protocol):
    """The connections of the server for clients."""

    refused: int
    cut_off: int


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        made = Registration(self.registry)
        self._traffic = {
            name: made.counter(f"headrace_broker_{name}", text, *_PARTITION_LABELS) for name, text in _TRAFFIC.items()
        }
        self._request_times: dict[tuple[str, str], Histogram] = {}
        self._of_requests(made)
        self._of_the_disk(made)
        self.lease_renewals = made.counter("headrace_broker_lease_renewals", "Lease renewals, by outcome.", "outcome")

    def _of_requests(self, made: Registration) -> None:
        self.request_seconds = made.histogram(
            "headrace_broker_request_seconds",
            "Time from a request's head to its answer, long polls included.",
            "method",
            "route",
            buckets=_REQUEST_SECONDS,
        )
        self.errors = made.counter("headrace_broker_errors", "Requests refused, by code of the problem.", "code")
        self.open_connections = made.gauge("headrace_broker_open_connections", "Client connections that are open.")
        self.watches = made.gauge("headrace_broker_watches", "Endless streams of records that are served or passed on.")

    def _of_the_disk(self, made: Registration) -> None:
        self.fsync_seconds = made.histogram(
            "headrace_broker_fsync_seconds", "Time of one log sync.", buckets=_FSYNC_SECONDS
        )
        self.deleted_segments = made.counter(
            "headrace_broker_deleted_segments",
            "Segments deleted by retention (time, size), by deleting their records (request), and after the leader.",
            "reason",
            values=ExpiryReason,
        )
        self.deleted_bytes = made.counter(
            "headrace_broker_deleted_bytes", "Size of the segments deleted.", "reason", values=ExpiryReason
        )
        self.appends_refused = made.counter(
            "headrace_broker_appends_refused",
            "Appends refused because the disk is full, by its quota or up to its reserve.",
        )
        self.orphaned_partitions = made.gauge(
            "headrace_broker_orphaned_partitions",
            "Partitions set aside because no PartitionSet names them, by what becomes of them: Delete after seven days,"
            " Retain for ever.",
            "deletion_policy",
        )

    def request_time(self, method: str, route: str) -> Histogram:
        """Return the histogram of one kind of request, to be kept: looking the labels up takes as long as observing."""
        found = self._request_times.get((method, route))
        if found is None:
            found = self._request_times[method, route] = self.request_seconds.labels(method, route)
        return found

    def counters(self, topic: TopicName, partition: PartitionId) -> PartitionCounters:
        labels = (topic.namespace, topic.name, str(partition))
        return PartitionCounters(**{name: counter.labels(*labels) for name, counter in self._traffic.items()})

    def forget(self, topic: TopicName, partition: PartitionId) -> None:
        """Drop a partition's series: it does not live here any more."""
        for counter in self._traffic.values():
            counter.remove(topic.namespace, topic.name, str(partition))

    def watch_disk(self, budget: DiskBudget) -> None:
        """Read what the disk holds from `budget` with each scrape."""
        self.registry.register(_Disk(budget))

    def watch_load(self, admission: Admission, connections: Connections) -> None:
        """Read what is under way from these with each scrape."""
        self.registry.register(_Load(admission, connections))

    def watch_partitions(self, observe: Callable[[], Iterable[PartitionGauges]]) -> None:
        """Read the partitions' gauges from `observe` with each scrape."""
        self.registry.register(_Partitions(observe))


class _Disk(Collector):
    def __init__(self, budget: DiskBudget) -> None:
        self._budget = budget

    def collect(self) -> Iterator[GaugeMetricFamily]:
        budget = self._budget
        family = GaugeMetricFamily(
            "headrace_broker_disk_bytes",
            "What the broker's files take (used), may take (quota), what stays free on their volume (reserve), and what"
            " may still be appended by both (room).",
            labels=("kind",),
        )
        family.add_metric(["used"], budget.used_bytes)
        family.add_metric(["reserve"], budget.reserve_bytes)
        for kind, size in (("quota", budget.quota_bytes), ("room", budget.room_bytes)):
            if size is not None:
                family.add_metric([kind], size)
        yield family
        yield GaugeMetricFamily(
            "headrace_broker_disk_full", "1 while appends are refused because the disk is full.", budget.is_full
        )


class _Load(Collector):
    def __init__(self, admission: Admission, connections: Connections) -> None:
        self._admission = admission
        self._connections = connections

    def collect(self) -> Iterator[Metric]:
        admission, connections = self._admission, self._connections
        budgets = {"bodies": admission.bodies, "answers": admission.answers, "json": admission.conversions}
        held = GaugeMetricFamily(
            "headrace_broker_bytes_in_flight",
            "Bytes held for clients: bodies of requests, answers on their way, JSON that is made or read.",
            labels=("kind",),
        )
        most = GaugeMetricFamily("headrace_broker_bytes_in_flight_max", "What may be held at most.", labels=("kind",))
        for kind, budget in budgets.items():
            held.add_metric([kind], budget.limit_bytes - budget.left_bytes)
            most.add_metric([kind], budget.limit_bytes)
        refused = CounterMetricFamily(
            "headrace_broker_refused", "What was refused because of all that was under way, by what.", labels=("what",)
        )
        refused.add_metric(["requests"], admission.requests_refused)
        refused.add_metric(["connections"], connections.refused)
        for kind in ("bodies", "answers"):
            refused.add_metric([kind], budgets[kind].refused)
        yield from (held, most, refused)
        yield GaugeMetricFamily(
            "headrace_broker_requests_in_flight", "Requests under way, long polls included.", admission.requests
        )
        yield CounterMetricFamily(
            "headrace_broker_slow_clients", "Streams and connections cut off: too slow.", connections.cut_off
        )


class _Partitions(Collector):
    def __init__(self, observe: Callable[[], Iterable[PartitionGauges]]) -> None:
        self._observe = observe

    def collect(self) -> Iterator[GaugeMetricFamily]:
        seen = list(self._observe())
        led = GaugeMetricFamily("headrace_broker_partitions_led", "Partitions that this broker leads.")
        led.add_metric([], sum(each.leads for each in seen))
        yield led
        yield from _redundancy(seen)
        for name, text in (
            ("log_bytes", "Size of the partition's log on disk."),
            ("log_start_offset", "First offset that is kept."),
            ("log_end_offset", "Next offset to write."),
            ("high_watermark", "First offset that is not committed."),
        ):
            family = GaugeMetricFamily(f"headrace_broker_{name}", text, labels=_PARTITION_LABELS)
            for each in seen:
                family.add_metric(_labels(each), getattr(each, name))
            yield family


def _redundancy(seen: Sequence[PartitionGauges]) -> Iterator[GaugeMetricFamily]:
    """Yield what Kafka users alert on, from the partition's leader alone, so that sums over brokers are right."""
    led = [(each, each.redundancy) for each in seen if each.redundancy is not None]
    for name, text, count in (
        (
            "under_replicated_partitions",
            "Partitions led here that have fewer replicas in sync than they should have.",
            sum(kept.is_under_replicated for _, kept in led),
        ),
        (
            "under_min_isr_partitions",
            "Partitions led here that have fewer replicas in sync than minInsyncReplicas: acks=all is refused.",
            sum(kept.is_under_min_isr for _, kept in led),
        ),
    ):
        yield GaugeMetricFamily(f"headrace_broker_{name}", text, count)
    leads = GaugeMetricFamily(
        "headrace_broker_leads", "1 where this broker leads the partition.", None, _PARTITION_LABELS
    )
    for each in seen:
        leads.add_metric(_labels(each), each.leads)
    replicas = GaugeMetricFamily(
        "headrace_broker_replicas", "Replicas that a partition led here should have.", None, _PARTITION_LABELS
    )
    in_sync = GaugeMetricFamily(
        "headrace_broker_in_sync_replicas", "Replicas in sync of a partition led here.", None, _PARTITION_LABELS
    )
    lag = GaugeMetricFamily(
        "headrace_broker_replica_lag_records",
        "How many offsets a follower of a partition led here is behind.",
        None,
        (*_PARTITION_LABELS, "follower"),
    )
    for each, kept in led:
        replicas.add_metric(_labels(each), kept.replicas)
        in_sync.add_metric(_labels(each), kept.in_sync)
        for follower, behind in kept.lags.items():
            lag.add_metric([*_labels(each), str(follower)], behind)
    yield from (leads, replicas, in_sync, lag)


def _labels(gauges: PartitionGauges) -> list[str]:
    return [gauges.topic.namespace, gauges.topic.name, str(gauges.partition)]
