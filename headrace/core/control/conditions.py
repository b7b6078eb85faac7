"""The conditions of Topics and ConsumerGroups, and the Events that people read.

As Kubernetes has it, `lastTransitionTime` moves when `status` does, and only then. For the changes in one PartitionSet
people get few Events, however many partitions a broker takes with it: one for all partitions that changed leaders for
the same cause, and one for all that lost records in the same way. Changes that only the topic's conditions show
(offline, under-replicated, reassigned) are announced with those. A `Restraint` (one per operator process) bounds them
further: of one reason (and `about`) about one object, at most one notice in an interval. Pure.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from headrace.core.control.actions import Change, ChangeKind, Notice
from headrace.core.resources.metadata import ConditionType
from headrace.core.resources.partition_set import PartitionState
from headrace.core.types import BrokerId

GROUP_EVENT_INTERVAL_MS = 30_000
"""The shortest time between two Events of one kind for each group: a group that rebalances all the time is one
Event."""
_LISTED_MAX: Final = 10
"""The number of partitions that a message names; the rest is counted."""
_REASONS: Final = {
    ChangeKind.ELECTED: "LeaderElected",
    ChangeKind.MOVED: "LeaderMoved",
    ChangeKind.RETURNED: "LeaderReturned",
}
_LOSSES: Final = {ChangeKind.ELECTED_UNCLEANLY: "UncleanLeaderElection", ChangeKind.RESORTED: "RecordsMayBeLost"}


@dataclass(frozen=True, slots=True)
class Condition:
    type: ConditionType
    true: bool
    reason: str
    """The reason in CamelCase, for programs."""
    message: str
    """The message for people; where something is wrong, with the remedy."""

    @classmethod
    def on(cls, type_: ConditionType, reason: str, message: str = "") -> "Condition":
        return cls(type=type_, true=True, reason=reason, message=message)

    @classmethod
    def off(cls, type_: ConditionType, reason: str, message: str = "") -> "Condition":
        return cls(type=type_, true=False, reason=reason, message=message)

    @property
    def status(self) -> str:
        return str(self.true)


def render(
    condition: Condition, previous: Mapping[str, Mapping[str, Any]], generation: int, now_ms: int
) -> dict[str, Any]:
    """Return the condition as it is written; `previous` are the conditions by type that are there now."""
    before = previous.get(condition.type, {})
    moved = before.get("status") != condition.status or "lastTransitionTime" not in before
    return {
        "type": condition.type.value,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "observedGeneration": generation,
        "lastTransitionTime": _rfc3339(now_ms) if moved else before["lastTransitionTime"],
    }


def by_type(conditions: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {str(condition.get("type")): condition for condition in conditions}


def notices(conditions: Sequence[Condition], previous: Mapping[str, Mapping[str, Any]]) -> tuple[Notice, ...]:
    """Return the notices for people: Ready with another status or reason, the others switched on or off."""
    heard = []
    for condition in conditions:
        before = previous.get(condition.type, {})
        switched = before.get("status", "False") != condition.status
        match condition.type:
            case ConditionType.READY if switched or before.get("reason") != condition.reason:
                message = condition.message or "every partition has a live leader"
                heard.append(Notice(condition.reason, message, warning=not condition.true))
            case ConditionType.UNDER_REPLICATED if switched and not heard:  # Ready implies it.
                message = condition.message or "every replica is in sync"
                heard.append(Notice(condition.reason, message, warning=condition.true))
            case ConditionType.REASSIGNING if switched and condition.true:
                heard.append(Notice("Reassigning", condition.message))
            case ConditionType.REASSIGNING if switched:
                heard.append(Notice("Reassigned", "every replica stands where it should"))
            case ConditionType.PREFERRED_LEADERS if condition.message and before.get("message") != condition.message:
                heard.append(Notice("PreferredLeadersRefused", condition.message, warning=True))
            case ConditionType.PAUSED:
                heard += _of_pausing(condition, before, switched=switched)
            case _:
                pass
    return tuple(heard)


def _of_pausing(condition: Condition, before: Mapping[str, Any], *, switched: bool) -> list[Notice]:
    if not condition.true and condition.message:
        is_new = before.get("message") != condition.message
        return [Notice(condition.reason, condition.message, warning=True)] if is_new else []
    if not switched:
        return []
    if condition.true:
        return [Notice("Paused", condition.message)]
    return [Notice("Resumed", "the operator looks after this topic again")]


def _rfc3339(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def announce(changes: Sequence[Change]) -> tuple[Notice, ...]:
    """Return the notices of `changes`, which are those of one write."""
    return (*_elections(changes), *_losses(changes))


def _elections(changes: Sequence[Change]) -> Iterator[Notice]:
    told = [change for change in changes if change.kinds[0] in _REASONS]
    for group in _grouped(told, lambda change: (change.kinds[0], change.cause)):
        leaders = sorted({change.state.leader.broker for change in group if change.state.leader is not None})
        by = f"broker{'s' if len(leaders) > 1 else ''} {', '.join(map(str, leaders))}"
        message = f"{named([change.state for change in group])}: {group[0].cause}; led by {by} now"
        yield Notice(_REASONS[group[0].kinds[0]], message)


def _losses(changes: Sequence[Change]) -> Iterator[Notice]:
    lossy = [change for change in changes if change.kinds[0] in _LOSSES]
    for group in _grouped(lossy, lambda change: (change.kinds[0], change.loss)):
        message = f"{named([change.state for change in group])}: {group[0].loss}"
        yield Notice(_LOSSES[group[0].kinds[0]], message, warning=True)


def _grouped(changes: Sequence[Change], alike: Callable[[Change], Hashable]) -> list[list[Change]]:
    groups: dict[Hashable, list[Change]] = {}
    for change in changes:
        groups.setdefault(alike(change), []).append(change)
    return list(groups.values())


def named(states: Sequence[PartitionState]) -> str:
    """Return `partition 3`, or `partitions 0, 1, 2`; of many, the first ones."""
    ids = [str(state.id) for state in states]
    shown = ", ".join(ids[:_LISTED_MAX])
    more = f" and {len(ids) - _LISTED_MAX} more" if len(ids) > _LISTED_MAX else ""
    return f"partitions {shown}{more}" if len(ids) > 1 else f"partition {shown}"


def named_brokers(brokers: Sequence[BrokerId]) -> str:
    """Return `broker 3`, or `brokers 0, 1`, in the order given."""
    return f"broker{'s' if len(brokers) > 1 else ''} {', '.join(map(str, brokers))}"


class Restraint:
    def __init__(self, interval_ms: int = GROUP_EVENT_INTERVAL_MS) -> None:
        self._interval_ms = interval_ms
        self._until_ms: dict[tuple[str, str, str], int] = {}
        """The ends of intervals by the uid of the object, the reason and `about`; those of the last interval, oldest
        first."""

    def allowed(self, uid: str, notices: Iterable[Notice], now_ms: int) -> list[Notice]:
        """Return the notices to be recorded."""
        self._forget(now_ms)
        told = []
        for notice in notices:
            kind = (uid, notice.reason, notice.about)
            if kind not in self._until_ms:
                self._until_ms[kind] = now_ms + self._interval_ms
                told.append(notice)
        return told

    def _forget(self, now_ms: int) -> None:
        while self._until_ms:
            oldest = next(iter(self._until_ms))
            if self._until_ms[oldest] > now_ms:
                return
            del self._until_ms[oldest]
