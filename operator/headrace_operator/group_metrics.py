"""What Prometheus sees of the operator's work for groups: gauges of the last look, counters of what was written.

In the registry of the process; names begin with `headrace_operator_`. What members do, brokers count.
"""

from collections import Counter as Tally
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from headrace.core.control.actions import GroupAction, WriteGroupStatus
from headrace.core.control.group_errands import Result, Verdict, Wish
from headrace.core.groups.identity import GroupState
from headrace.core.resources.consumer_group import ConsumerGroup

_NAMESPACE = "headrace_operator"
_UNKNOWN = "Unknown"


class GroupMetrics:
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
        """Those of this cluster."""
        states = Tally(_UNKNOWN if group.status.state is None else group.status.state.value for group in groups)
        for state in (_UNKNOWN, *(each.value for each in GroupState if each is not GroupState.DEAD)):
            self._groups.labels(state).set(states[state])

    def landed(self, action: GroupAction) -> None:
        self._targets.inc(isinstance(action, WriteGroupStatus) and action.assigns)

    def asked(self, wish: Wish, verdict: Verdict) -> None:
        what = "delete" if wish.reset is None else "reset"
        names = {Result.DONE: "done", Result.NOT_EMPTY: "not_empty", Result.REFUSED: "refused"}
        self._asked.labels(what, names.get(verdict.result, "unanswered")).inc()
