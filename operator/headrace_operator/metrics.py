"""The metrics of the operator, for Prometheus. One registry per process; names begin with `headrace_operator_`.

Gauges are of the last picture, also where another operator acts; counters count what this process has written, for
topics and for groups. What members of groups do, brokers count. The names are those that Kafka users alert on, as
Prometheus spells them: `docs/architecture.md` has the table.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from headrace.core.control.actions import (
    ELECTIONS,
    UNCLEAN,
    Action,
    ChangeKind,
    GroupAction,
    ReplaceSet,
    WriteGroupStatus,
)
from headrace.core.control.group_errands import ErrandVerdict, Result, Wish
from headrace.core.control.status import BrokerStanding, Health, standings
from headrace.core.groups.identity import GroupState
from headrace.core.resources.consumer_group import ConsumerGroup
from headrace_operator.observer import Picture

_NAMESPACE = "headrace_operator"
_UNKNOWN = "Unknown"


class OperatorGroupMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._groups = Gauge(
            "consumer_groups", "ConsumerGroups by state.", ["state"], namespace=_NAMESPACE, registry=registry
        )
        self.stuck = Gauge(
            "stuck_groups",
            "ConsumerGroups that cannot be written: the API server refuses it.",
            namespace=_NAMESPACE,
            registry=registry,
        )
        self.unreadable = Gauge(
            "unreadable_groups",
            "ConsumerGroups that cannot be read, and are left alone until somebody mends them.",
            namespace=_NAMESPACE,
            registry=registry,
        )
        self._targets = Counter(
            "group_assignments",
            "Assignments that were published for coordinators.",
            namespace=_NAMESPACE,
            registry=registry,
        )
        self._asked = Counter(
            "group_requests",
            "Deletions and resets that brokers were asked for, by what came of them.",
            ["what", "result"],
            namespace=_NAMESPACE,
            registry=registry,
        )
        self.pass_seconds = Histogram(
            "group_pass_seconds", "Time of one look at all groups.", namespace=_NAMESPACE, registry=registry
        )

    def seen(self, groups: Iterable[ConsumerGroup]) -> None:
        """Count the groups of this cluster."""
        states = Tally(_UNKNOWN if group.status.state is None else group.status.state.value for group in groups)
        for state in (_UNKNOWN, *(each.value for each in GroupState if each is not GroupState.DEAD)):
            self._groups.labels(state).set(states[state])

    def landed(self, action: GroupAction) -> None:
        self._targets.inc(isinstance(action, WriteGroupStatus) and action.assigns)

    def asked(self, wish: Wish, verdict: ErrandVerdict) -> None:
        what = "delete" if wish.reset is None else "reset"
        names = {Result.DONE: "done", Result.NOT_EMPTY: "not_empty", Result.REFUSED: "refused"}
        self._asked.labels(what, names.get(verdict.result, "unanswered")).inc()


class OperatorMetrics:
    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.groups = OperatorGroupMetrics(self._registry)
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
        """Set a gauge that is computed with each scrape: whether it is this operator's turn. Where no picture comes, a
        turn ends all the same.

        The sum over all operators of the cluster is 1.
        """
        self._acting.labels(cluster).set_function(acts)

    def seen(self, picture: Picture) -> None:
        self._unreadable.set(picture.unreadable)
        health = Health.of(picture.topics, picture.observed)
        for name, gauge in self._health.items():
            gauge.set(getattr(health, name))
        found = standings(picture.observed)
        for standing in BrokerStanding:
            self._brokers.labels(standing.value).set(found[standing])

    def landed(self, action: Action) -> None:
        """Count an action that is written."""
        kinds = Tally(action.kinds if isinstance(action, ReplaceSet) else ())
        self._elections.inc(sum(kinds[kind] for kind in ELECTIONS))
        self._unclean.inc(sum(kinds[kind] for kind in UNCLEAN))
        self._shrinks.inc(kinds[ChangeKind.SHRUNK])

    def exposition(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def _gauge(self, name: str, documentation: str) -> Gauge:
        return Gauge(name, documentation, namespace=_NAMESPACE, registry=self._registry)

    def _counter(self, name: str, documentation: str) -> Counter:
        return Counter(name, documentation, namespace=_NAMESPACE, registry=self._registry)
