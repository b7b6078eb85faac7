"""What Prometheus sees of the operator. One registry per process; names begin with `headrace_operator_`."""

from collections import Counter as Tally

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from headrace.core.control.observed import BrokerState
from headrace_operator.observer import Picture

_NAMESPACE = "headrace_operator"


class Metrics:
    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._topics = self._gauge("topics", "Topics of this cluster.")
        self._partitions = self._gauge("partitions", "Partitions that have seats.")
        self._offline = self._gauge("offline_partitions", "Partitions without a live leader.")
        self._brokers = Gauge("brokers", "Brokers by state.", ["state"], namespace=_NAMESPACE, registry=self._registry)
        self._acting = self._gauge("acting", "1 for the operator that acts, 0 for one that stands by.")
        self.reconcile_seconds = Histogram(
            "reconcile_seconds", "Time of one pass.", namespace=_NAMESPACE, registry=self._registry
        )
        self.reconciles = self._counter("reconciles", "Passes of the loop.")
        self.errors = self._counter("reconcile_errors", "Passes that failed, or met a conflict or a refusal.")
        self.actions = self._counter("actions", "Actions that were planned.")

    def seen(self, picture: Picture, *, acts: bool = True) -> None:
        """`acts`: whether it is this operator's turn; the sum over all operators is 1."""
        self._acting.set(acts)
        observed = picture.observed
        ours = {topic.uid for topic in picture.topics if topic.spec.cluster == observed.cluster}
        states = [state for s in observed.sets if s.topic_uid in ours for state in s.partitions]
        self._topics.set(len(ours))
        self._partitions.set(len(states))
        self._offline.set(sum(not observed.holds(state.leader) for state in states))
        tally = Tally(broker.state for broker in observed.brokers.values())
        for broker_state in BrokerState:
            self._brokers.labels(broker_state.value).set(tally[broker_state])

    def exposition(self) -> bytes:
        """In Prometheus' text format."""
        return generate_latest(self._registry)

    def _gauge(self, name: str, documentation: str) -> Gauge:
        return Gauge(name, documentation, namespace=_NAMESPACE, registry=self._registry)

    def _counter(self, name: str, documentation: str) -> Counter:
        return Counter(name, documentation, namespace=_NAMESPACE, registry=self._registry)
