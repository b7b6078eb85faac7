"""What Prometheus is told of a broker's writes to PartitionSets. The first two are named as Kafka's users know them."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge


class SetMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.isr_shrinks = Counter(
            "headrace_isr_shrinks", "ISRs of partitions led here that have lost a member.", registry=registry
        )
        self.isr_expands = Counter(
            "headrace_isr_expands", "ISRs of partitions led here that have gained a member.", registry=registry
        )
        self.writes = Counter(
            "headrace_broker_set_writes",
            "Writes to PartitionSets, by outcome: landed, conflict, unanswered (whether it landed is not known yet).",
            ("outcome",),
            registry=registry,
        )
        self._undecided = Gauge(
            "headrace_broker_set_writes_undecided",
            "PartitionSets with a write of which it is not known whether it has landed.",
            registry=registry,
        )

    def watch(self, undecided: Callable[[], float]) -> None:
        self._undecided.set_function(undecided)
