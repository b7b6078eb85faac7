"""What Prometheus is told of a broker's writes to PartitionSets. The first two are named as Kafka's users know them."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry

from headrace_broker.registration import Registration


class SetMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        made = Registration(registry)
        self.isr_shrinks = made.counter("headrace_isr_shrinks", "ISRs of partitions led here that have lost a member.")
        self.isr_expands = made.counter(
            "headrace_isr_expands", "ISRs of partitions led here that have gained a member."
        )
        self.writes = made.counter(
            "headrace_broker_set_writes",
            "Writes to PartitionSets, by outcome: landed, conflict, unanswered (whether it landed is not known yet).",
            "outcome",
        )
        self._undecided = made.gauge(
            "headrace_broker_set_writes_undecided",
            "PartitionSets with a write of which it is not known whether it has landed.",
        )

    def watch(self, undecided: Callable[[], float]) -> None:
        self._undecided.set_function(undecided)
