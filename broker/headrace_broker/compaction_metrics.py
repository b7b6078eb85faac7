"""What Prometheus is told of compaction, under `headrace_broker_compaction_*`; one per process."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)


class CompactionMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.passes = Counter(
            "headrace_broker_compaction_passes",
            "Passes over a log, by outcome: done, damaged (a batch is not what was written), and what is tried again:"
            " changed (records were deleted meanwhile), disk, memory, ended (the process that compacts was killed).",
            ("outcome",),
            registry=registry,
        )
        self.seconds = Histogram(
            "headrace_broker_compaction_seconds", "Time of one pass.", buckets=_SECONDS, registry=registry
        )
        self.bytes_read, self.bytes_written, self.records_read, self.records_written = (
            Counter(f"headrace_broker_compaction_{name}", text, registry=registry)
            for name, text in (
                ("bytes_read", "Bytes of segments that were replaced by their compacted form."),
                ("bytes_written", "Bytes of the segments that replaced them."),
                ("records_read", "Records that passes looked at."),
                ("records_written", "Records that they left."),
            )
        )
        self.unreadable = Gauge(
            "headrace_broker_compaction_unreadable_batches",
            "Batches that were written so that nobody can decode them, and stay as they are.",
            registry=registry,
        )
        self.damaged, self.failing = (
            Gauge(f"headrace_broker_compaction_{name}_partitions", text, registry=registry)
            for name, text in (
                ("damaged", "Partitions that are not compacted because a batch in them is damaged."),
                ("failing", "Partitions whose last pass has failed, and will be tried again."),
            )
        )
