"""`plan_groups`: what to do next for the consumer groups of a cluster, and the conditions that their status shows.

    finalizer (no data of a group must be left behind) ──> target, conditions ──> ...
    deleted ──> its coordinator has deleted it (`group_errands`) ──> the finalizer goes

    Ready         True: Stable, Empty, ProgressOnly (type Spark)
                  False: Pending (no coordinator yet), CoordinatorOffline, Rebalancing, Paused,
                         GroupNotEmpty and DeletionWaits (it is to be deleted), InvalidSpec (`pausedUntil`)
    Paused        True while `spec.pausedUntil` lies ahead
    OffsetsReset  there while there is a `spec.resetOffsets`; True: Applied; False: what it waits for, or ProgressOnly

Pure and level-triggered. The coordinator takes a target (`groups.status.target_for`) if it fits and comes within
ASSIGNMENT_TIMEOUT_MS; else it makes the same one itself. So a group that waits for one comes first. One write for each
object in one pass; targets and conditions are one write. Messages depend on nothing but what is seen, so that the next
pass changes nothing.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, assert_never

from headrace.core.control.actions import GroupAction, Notice, SetGroupFinalizers, TopicAction, WriteGroupStatus
from headrace.core.control.conditions import Condition, by_type, render
from headrace.core.control.group_errands import ErrandVerdict, Result, Wish, wish_of
from headrace.core.control.group_view import Coordinators, GroupView, Shapes
from headrace.core.control.internal_topic_plan import plan_offsets_topic, plan_staging_topics
from headrace.core.groups.identity import GroupState, GroupType
from headrace.core.groups.status import assigned, target_for
from headrace.core.resources.consumer_group import GROUP_FINALIZER, ConsumerGroup, ConsumerGroupStatus, format_moment
from headrace.core.resources.metadata import ConditionType

_LISTED_MAX = 5
"""The number of members that a message names; the rest is counted."""
_PROGRESS = "ProgressOnly"
"""The reason why much does not apply to groups of type Spark."""
_UNTOLD = "its coordinator has not told of it yet"
_UNREPORTED = "no Spark query has reported to it: give it the option group with this name"
_NO_RESET = (
    "a Spark query begins where its checkpoint says: start it with another checkpoint and startingOffsets, and take"
    " resetOffsets out"
)
_WAITED_SHARE = 8
"""The share of writes, one in so many, for groups whose turn did not come before."""


@dataclass(frozen=True, slots=True)
class Situation:
    """The facts about a group beside its resource."""

    trouble: str = ""
    """The reason why it has no coordinator; empty where it has one."""
    settled: bool = True
    """True where `trouble` will last."""
    verdict: ErrandVerdict | None = None
    """The result of the last request for it."""


def described(group: ConsumerGroup, situation: Situation, now_ms: int) -> tuple[ConsumerGroup, tuple[Notice, ...]]:
    """Return the group with its new conditions, and what is new in them."""
    previous = by_type(group.status.conditions)
    wanted = [_ready(group, situation, now_ms), _paused(group, now_ms), _reset(group, situation, previous)]
    conditions = [condition for condition in wanted if condition is not None]
    if situation.trouble and not situation.settled and previous.get("Ready", {}).get("status") in ("True", "False"):
        conditions = conditions[1:]  # Another broker leads in a moment; for a new group, there is no status yet.
    generation = group.metadata.generation
    written = [render(condition, previous, generation, now_ms) for condition in conditions]
    names = {*(each["type"] for each in written), *([] if wanted[2] else [ConditionType.OFFSETS_RESET.value])}
    kept = [dict(condition) for name, condition in previous.items() if name not in names]
    ordered = sorted([*kept, *written], key=lambda condition: str(condition.get("type")))
    status = replace(group.status, observed_generation=generation, conditions=tuple(ordered))
    return replace(group, status=status), _notices(conditions, previous)


def _ready(group: ConsumerGroup, situation: Situation, now_ms: int) -> Condition:
    if group.deleting:
        return Condition.off(ConditionType.READY, *_why_it_stays(group, situation))
    if situation.trouble:
        reason = "CoordinatorOffline" if group.status.state is not None else "Pending"
        return Condition.off(ConditionType.READY, reason, situation.trouble)
    if group.spec.type is GroupType.SPARK:
        return _progress(group.status)
    if fault := group.spec.fault("pausedUntil"):
        return Condition.off(ConditionType.READY, "InvalidSpec", f"{fault}; until then the group is not paused")
    if group.is_paused(now_ms):
        return Condition.off(ConditionType.READY, "Paused", _until(group))
    return _ready_by_state(group.status)


def _progress(status: ConsumerGroupStatus) -> Condition:
    if status.state is None:
        return Condition.off(ConditionType.READY, "Pending", _UNTOLD)
    shown = "it shows what a Spark query reports, whose position is in its checkpoint" if status.topics else _UNREPORTED
    return Condition.on(ConditionType.READY, _PROGRESS, shown)


def _ready_by_state(status: ConsumerGroupStatus) -> Condition:
    match status.state:
        case None:
            return Condition.off(ConditionType.READY, "Pending", _UNTOLD)
        case GroupState.EMPTY | GroupState.DEAD:
            return Condition.on(ConditionType.READY, "Empty", "it has no members")
        case GroupState.STABLE:
            return Condition.on(ConditionType.READY, "Stable", _shared_out(status))
        case GroupState.ASSIGNING | GroupState.RECONCILING:
            return Condition.off(ConditionType.READY, "Rebalancing", "partitions go from member to member")
        case _:
            assert_never(status.state)


def _shared_out(status: ConsumerGroupStatus) -> str:
    partitions = sum(len(share.partitions) for member in status.members for share in member.assignment)
    topics = sorted({share.topic for member in status.members for share in member.assignment})
    more = f" and {len(topics) - _LISTED_MAX} more topics" if len(topics) > _LISTED_MAX else ""
    of = f" of {', '.join(topics[:_LISTED_MAX])}{more}" if topics else ""
    members = _counted(len(status.members), "member")
    return f"{members}, {_counted(partitions, 'partition')}{of}; epoch {status.group_epoch}"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _why_it_stays(group: ConsumerGroup, situation: Situation) -> tuple[str, str]:
    verdict = situation.verdict
    if verdict is not None and verdict.result is Result.NOT_EMPTY:
        return "GroupNotEmpty", f"it is deleted once it has no members: stop {members_of(group)}"
    if situation.trouble:
        return "DeletionWaits", f"its offsets are deleted by its coordinator, and {situation.trouble}"
    if verdict is not None and verdict.result is not Result.DONE:
        return "DeletionWaits", f"its offsets are deleted by its coordinator, which says: {verdict.message}"
    return "Deleting", "its offsets are being deleted"


def members_of(group: ConsumerGroup) -> str:
    """Return the members, as far as the status names them."""
    named = [
        (member.instance or member.member) + (f" ({member.client_address})" if member.client_address else "")
        for member in group.status.members
    ]
    more = f" and {len(named) - _LISTED_MAX} more" if len(named) > _LISTED_MAX else ""
    return f"{', '.join(named[:_LISTED_MAX])}{more}" if named else "its members"


def _paused(group: ConsumerGroup, now_ms: int) -> Condition:
    if group.spec.type is GroupType.SPARK:
        return Condition.off(ConditionType.PAUSED, _PROGRESS, "a Spark query is paused where it runs")
    if group.is_paused(now_ms):
        return Condition.on(ConditionType.PAUSED, "PausedUntil", _until(group))
    return Condition.off(ConditionType.PAUSED, "NotPaused")


def _until(group: ConsumerGroup) -> str:
    return f"nobody is given anything to read until {format_moment(group.spec.paused_until_ms or 0)}"


def _reset(group: ConsumerGroup, situation: Situation, previous: Mapping[str, Mapping[str, Any]]) -> Condition | None:
    reset = group.spec.reset_offsets
    if fault := group.spec.fault("resetOffsets"):
        return Condition.off(ConditionType.OFFSETS_RESET, "InvalidRequest", fault)
    if reset is None:
        return None
    if group.spec.type is GroupType.SPARK:
        return Condition.off(ConditionType.OFFSETS_RESET, _PROGRESS, f"{reset.id}: {_NO_RESET}")
    last = group.status.last_reset
    if last is not None and last.id == reset.id:
        return Condition.on(ConditionType.OFFSETS_RESET, "Applied", f"{reset.id}: {last.result or 'Applied'}")
    verdict = situation.verdict
    if group.status.members or (verdict is not None and verdict.result is Result.NOT_EMPTY):
        message = f"{reset.id} waits until the group is empty: stop {members_of(group)}"
        return Condition.off(ConditionType.OFFSETS_RESET, "GroupNotEmpty", message)
    if verdict is None and situation.trouble and situation.settled:
        return Condition.off(ConditionType.OFFSETS_RESET, "Unanswered", f"{reset.id}: {situation.trouble}")
    if verdict is None:
        return _still(reset.id, group.metadata.generation, previous)
    if verdict.result is Result.DONE:
        return Condition.off(ConditionType.OFFSETS_RESET, "Pending", f"{reset.id}: applied, and about to be told")
    return Condition.off(ConditionType.OFFSETS_RESET, verdict.reason, f"{reset.id}: {verdict.message}")


def _still(reset: str, generation: int, previous: Mapping[str, Mapping[str, Any]]) -> Condition:
    """Return the condition before a try, or after a restart: what was known of this very reset stays until it is tried
    again."""
    before = previous.get(ConditionType.OFFSETS_RESET, {})
    pending = Condition.off(ConditionType.OFFSETS_RESET, "Pending", f"{reset}: about to be carried out")
    if before.get("observedGeneration") != generation or before.get("status") != "False":
        return pending
    return Condition.off(ConditionType.OFFSETS_RESET, str(before.get("reason")), str(before.get("message")))


def _notices(conditions: Sequence[Condition], previous: Mapping[str, Mapping[str, Any]]) -> tuple[Notice, ...]:
    heard = []
    for condition in conditions:
        before = previous.get(condition.type, {})
        switched = before.get("status", "False") != condition.status
        other = before.get("reason") != condition.reason
        match condition.type, condition.reason:
            case ConditionType.READY, "Stable" if before.get("message") != condition.message:
                heard.append(Notice("Rebalanced", condition.message))
            case ConditionType.READY, "GroupNotEmpty" | "DeletionWaits" if other:
                heard.append(Notice(condition.reason, condition.message, warning=True))
            case ConditionType.READY, "CoordinatorOffline" | "InvalidSpec" if other:
                heard.append(Notice(condition.reason, condition.message, warning=True))
            case ConditionType.PAUSED, _ if switched:
                paused = Notice("Paused", condition.message)
                heard.append(paused if condition.true else Notice("Resumed", "its members are given partitions again"))
            case ConditionType.OFFSETS_RESET, "Applied" if switched:
                heard.append(Notice("OffsetsReset", condition.message, about=_reset_of(condition)))
            case ConditionType.OFFSETS_RESET, "GroupNotEmpty" | "Unanswered" if other:
                heard.append(Notice("ResetWaits", condition.message, warning=True, about=_reset_of(condition)))
            case ConditionType.OFFSETS_RESET, "GroupNotEmpty" | "Unanswered" | "Applied" | "Pending":
                pass
            case ConditionType.OFFSETS_RESET, _ if other or before.get("message") != condition.message:
                heard.append(Notice("ResetRefused", condition.message, warning=True, about=_reset_of(condition)))
            case _:
                pass
    return tuple(heard)


def _reset_of(condition: Condition) -> str:
    """Return the reset of a condition: another reset, or another reason to wait with it, is news."""
    return f"{condition.message.split(' ')[0]} {condition.reason}"


@dataclass(frozen=True, slots=True)
class GroupPlan:
    topic: TopicAction | None
    """The action about one of the internal topics."""
    groups: tuple[GroupAction, ...]
    """The actions of different groups, which do not depend on each other; the most urgent first."""


def plan_groups(view: GroupView, verdicts: Mapping[Wish, ErrandVerdict], now_ms: int) -> GroupPlan:
    """Plan for all groups; `verdicts` are the results of requests to brokers; `now_ms` is wall time."""
    coordinators, shapes = Coordinators.of(view), view.shapes()
    actions = []
    for group in view.ours:
        if group.metadata.uid in view.resting:
            continue
        wish = wish_of(group)
        situation = Situation(
            coordinators.trouble(group), view.settled, verdicts.get(wish) if wish is not None else None
        )
        action = _marked(group, coordinators, situation) or _written(group, shapes, situation, now_ms)
        if action is not None:
            actions.append(action)
    topic = plan_offsets_topic(view, now_ms) or plan_staging_topics(view)
    return GroupPlan(topic, tuple(_in_turn(actions, view.waited)))


def _in_turn(actions: Iterable[GroupAction], waited: Collection[str]) -> list[GroupAction]:
    """Return the actions, targets first, but every so often a group that has `waited`: a flood of targets must not
    delay a finalizer without end."""
    urgent, patient, other = list[GroupAction](), list[GroupAction](), list[GroupAction]()
    for action in actions:
        kind = urgent if _assigns(action) else patient if action.group.metadata.uid in waited else other
        kind.append(action)
    ahead = [urgent[first : first + _WAITED_SHARE - 1] for first in range(0, len(urgent), _WAITED_SHARE - 1)]
    turns = [
        action for turn, late in zip_longest(ahead, patient) for action in (*(turn or ()), *([late] if late else ()))
    ]
    return [*turns, *other]


def askable(view: GroupView) -> list[ConsumerGroup]:
    """Return the groups that brokers can be asked about: no broker knows a group without a coordinator."""
    coordinators = Coordinators.of(view)
    return [group for group in view.ours if wish_of(group) is not None and not coordinators.trouble(group)]


def _assigns(action: GroupAction) -> bool:
    return isinstance(action, WriteGroupStatus) and action.assigns


def _marked(group: ConsumerGroup, coordinators: Coordinators, situation: Situation) -> SetGroupFinalizers | None:
    """Return the change of the finalizer, where it is missing or has done its work."""
    finalizers = group.metadata.finalizers
    if not group.deleting:
        if GROUP_FINALIZER in finalizers:
            return None
        return SetGroupFinalizers(group, (*finalizers, GROUP_FINALIZER), "its offsets must go before it does")
    if GROUP_FINALIZER not in finalizers or not _is_deleted(coordinators, situation.verdict):
        return None
    others = tuple(name for name in finalizers if name != GROUP_FINALIZER)
    return SetGroupFinalizers(group, others, "nothing is left of it")


def _is_deleted(coordinators: Coordinators, verdict: ErrandVerdict | None) -> bool:
    """Return whether the coordinator has reported it deleted, or no broker ever can have kept anything of it."""
    return not coordinators.may_be_kept or (verdict is not None and verdict.result is Result.DONE)


def _written(group: ConsumerGroup, shapes: Shapes, situation: Situation, now_ms: int) -> WriteGroupStatus | None:
    topics = shapes.get(group.metadata.namespace, {})
    target = target_for(group, topics, now_ms)
    shared = group if target is None else assigned(group, target, topics)
    changed, notices = described(shared, situation, now_ms)
    if changed.status == group.status:
        return None
    reason = (
        f"target of epoch {changed.status.assignment_epoch}" if target is not None else "what is observed has changed"
    )
    return WriteGroupStatus(changed, reason, notices, assigns=target is not None)


def next_change_ms(view: GroupView, now_ms: int) -> int | None:
    """Return when time alone changes something, by the clock of `now_ms`: a pause ends."""
    ends = (group.spec.paused_until_ms for group in view.ours if group.is_paused(now_ms))
    return min((end for end in ends if end is not None), default=None)
