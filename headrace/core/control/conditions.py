"""Conditions of Topics and ConsumerGroups, as Kubernetes has them: `lastTransitionTime` moves when `status` does, and
only then."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from headrace.core.control.actions import Notice
from headrace.core.resources.conditions import ConditionType


@dataclass(frozen=True, slots=True)
class Condition:
    type: ConditionType
    true: bool
    reason: str
    """CamelCase, for programs."""
    message: str
    """For people; where something is wrong, with the remedy."""

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
    """The condition as it is written; `previous` are the conditions by type that are there now."""
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
    """What people should hear of: Ready with another status or reason, the others switched on or off."""
    heard = []
    for condition in conditions:
        before = previous.get(condition.type, {})
        switched = before.get("status", "False") != condition.status
        match condition.type:
            case ConditionType.READY if switched or before.get("reason") != condition.reason:
                message = condition.message or "every partition has a live leader"
                heard.append(Notice(condition.reason, message, warning=not condition.true))
            case ConditionType.UNDER_REPLICATED if switched and not heard:  # with Ready it goes without saying
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
