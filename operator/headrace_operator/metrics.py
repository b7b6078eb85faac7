"""What Prometheus sees of the operator. One registry per process; names begin with `headrace_operator_`.

Gauges are of the last picture, whichever operator of several it was that looked; counters count what this process has
written. The names are those that Kafka users alert on, as Prometheus spells them: `docs/architecture.md` has the table.
"""

from collections import Counter as Tally
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from headrace.core.control.actions import ELECTIONS, UNCLEAN, Action, ChangeKind, ReplaceSet
from headrace.core.control.status import Health, Standing, standings
from headrace_operator.group_metrics import GroupMetrics
from headrace_operator.observer import Picture

_NAMESPACE = "headrace_operator"


class Metrics:
    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.groups = GroupMetrics(self._registry)
        self._health = {
            "topics": self._gauge("topics", "Topics of this cluster."),
            "partitions": self._gauge("partitions", "Partitions that have seats."),
            "offline": self._gauge("offline_partitions", "Partitions without a live leader."),
            "under_replicated": self._gauge(
                "under_replicated_partitions", "Partitions with fewer replicas in sync than their topic asks for."
            ),
            "under_min_isr": self._gauge(
                "under_min_isr_partitions", "Partitions that refuse acks=all: fewer in sync than minInsyncReplicas."
            ),
            "reassigning": self._gauge("reassigning_partitions", "Partitions whose replicas move."),
            "not_preferred": self._gauge(
                "not_preferred_leader_partitions", "Partitions led by another than their preferred leader."
            ),
        }
        self._brokers = Gauge("brokers", "Brokers by state.", ["state"], namespace=_NAMESPACE, registry=self._registry)
        self._acting = Gauge(
            "acting",
            "1 for the operator of the cluster that acts, 0 for one that stands by.",
            ["cluster"],
            namespace=_NAMESPACE,
            registry=self._registry,
        )
        self.stuck = self._gauge("stuck_reconciles", "Topics that cannot be written: the API server refuses it.")
        self._unreadable = self._gauge(
            "unreadable_objects", "Objects that cannot be read, and are left out; see the log."
        )
        self.reconcile_seconds = Histogram(
            "reconcile_seconds", "Time of one pass.", namespace=_NAMESPACE, registry=self._registry
        )
        self.reconciles = self._counter("reconciles", "Passes of the loop.")
        self.errors = self._counter("reconcile_errors", "Passes that failed, or met a conflict or a refusal.")
        self.actions = self._counter("actions", "Actions that were planned.")
        self._elections = self._counter("leader_elections", "Leaders elected, by whatever cause.")
        self._unclean = self._counter("unclean_leader_elections", "Leaders elected that may lack acknowledged records.")
        self._shrinks = self._counter("isr_shrinks", "ISRs that lost brokers have been taken out of.")

    def watch_turn(self, cluster: str, acts: Callable[[], bool]) -> None:
        """Ask with each scrape whether it is this operator's turn: where no picture comes, a turn ends all the same.

        The sum over all operators of the cluster is 1.
        """
        self._acting.labels(cluster).set_function(acts)

    def seen(self, picture: Picture) -> None:
        self._unreadable.set(picture.unreadable)
        health = Health.of(picture.topics, picture.observed)
        for name, gauge in self._health.items():
            gauge.set(getattr(health, name))
        found = standings(picture.observed)
        for standing in Standing:
            self._brokers.labels(standing.value).set(found[standing])

    def landed(self, action: Action) -> None:
        """It is written."""
        kinds = Tally(action.kinds if isinstance(action, ReplaceSet) else ())
        self._elections.inc(sum(kinds[kind] for kind in ELECTIONS))
        self._unclean.inc(sum(kinds[kind] for kind in UNCLEAN))
        self._shrinks.inc(kinds[ChangeKind.SHRUNK])

    def exposition(self) -> bytes:
        """In Prometheus' text format."""
        return generate_latest(self._registry)

    def _gauge(self, name: str, documentation: str) -> Gauge:
        return Gauge(name, documentation, namespace=_NAMESPACE, registry=self._registry)

    def _counter(self, name: str, documentation: str) -> Counter:
        return Counter(name, documentation, namespace=_NAMESPACE, registry=self._registry)
