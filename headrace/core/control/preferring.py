"""Whom people, or a job that looks at load, want to lead: `headrace.io/preferred-leaders: '{"0": 2, "3": 1}'`.

A broker that is named becomes the first of the partition's replicas, which is its preferred leader, and leadership goes
there as it does when a preferred leader comes back. Only a replica can be named; what cannot be done is told in the
condition PreferredLeaders, and the rest is done. For a partition that has no place yet it is too early.

Level-triggered: balancing leaves these partitions' order alone for as long as the annotation names them, and without it
they stay as they are until balancing finds better.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.core.control.conditions import Condition
from headrace.core.resources.conditions import ConditionType
from headrace.core.resources.partition_set import PartitionState
from headrace.core.resources.topic import PREFERRED_ANNOTATION, Topic
from headrace.core.types import BrokerId, PartitionId

_TOLD_MAX = 3
"""Mistakes that one message names."""


@dataclass(frozen=True, slots=True)
class Preference:
    wanted: Mapping[PartitionId, BrokerId] = field(default_factory=dict)
    """What can be done."""
    problems: tuple[str, ...] = ()
    """What cannot, with the remedy."""


def preference_of(topic: Topic, states: Sequence[PartitionState]) -> Preference:
    text = topic.metadata.annotations.get(PREFERRED_ANNOTATION)
    if text is None:
        return Preference()
    try:
        asked: Any = json.loads(text)
    except (ValueError, RecursionError):
        asked = None
    if not isinstance(asked, dict):
        return Preference(problems=(f"{text[:80]!r} is no JSON object: write partitions and brokers, as {_EXAMPLE}",))
    targets = {str(state.id): state.target for state in states}
    awaited = {str(number) for number in range(topic.spec.partitions)} - {*targets}
    found = {name: _problem(name, broker, targets) for name, broker in asked.items() if name not in awaited}
    wanted = {PartitionId(int(name)): BrokerId(asked[name]) for name, problem in found.items() if not problem}
    return Preference(wanted, tuple(filter(None, found.values())))


_EXAMPLE = '{"0": 2}'


def _problem(name: str, broker: object, targets: Mapping[str, Sequence[BrokerId]]) -> str:
    """Empty where there is none."""
    if name not in targets:
        return f"there is no partition {name[:20]!r}: the topic has {len(targets)}, from 0"
    if not isinstance(broker, int) or isinstance(broker, bool):
        return f"partition {name}: {str(broker)[:20]!r} is no broker's id: write a number, as {_EXAMPLE}"
    if broker not in targets[name]:
        replicas = ", ".join(map(str, sorted(targets[name])))
        return f"partition {name}: broker {broker} has no replica of it: name one of {replicas}"
    return ""


def preferred_condition(topic: Topic, states: Sequence[PartitionState]) -> tuple[Condition, ...]:
    """None where the topic has never had the annotation."""
    kind, name = ConditionType.PREFERRED_LEADERS, ConditionType.PREFERRED_LEADERS.value
    if PREFERRED_ANNOTATION not in topic.metadata.annotations:
        was_told = any(each.get("type") == name for each in topic.status.get("conditions") or ())
        return (Condition.off(kind, "NotSet"),) if was_told else ()
    problems = preference_of(topic, states).problems
    if not problems:
        return (Condition.on(kind, "Accepted"),)
    more = f"; and {len(problems) - _TOLD_MAX} more" if len(problems) > _TOLD_MAX else ""
    message = f"annotation {PREFERRED_ANNOTATION}: {'; '.join(problems[:_TOLD_MAX])}{more}"
    return (Condition.off(kind, "Refused", message),)
