"""What Prometheus is told of staged commits on this broker."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from headrace.core.staging.decisions import Decision


class WriterMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.writers = Gauge("headrace_broker_writers", "Writers that this broker decides for.", registry=registry)
        self._rolling = Gauge(
            "headrace_broker_writer_batches_rolling",
            "Committed batches that are on their way into their partitions.",
            registry=registry,
        )
        self._committed = Counter(
            "headrace_broker_writer_records_committed_total",
            "Records of staged commits that were carried into their partitions, or dropped with these.",
            registry=registry,
        )
        self._seconds = Histogram(
            "headrace_broker_writer_roll_seconds",
            "Time from the decision until a batch is in all of its partitions.",
            registry=registry,
        )

    @contextmanager
    def rolling(self, decision: Decision) -> Iterator[None]:
        started = perf_counter()
        with self._rolling.track_inprogress():
            yield
        self._seconds.observe(perf_counter() - started)
        self._committed.inc(sum(batch.record_count for batch in decision.staged()))
