"""`plan_groups`: what to do next for the consumer groups of a cluster. Pure, level-triggered, as `plan` is for topics.

    finalizer (nothing of a group must be left behind) ──> target, conditions ──> ...
    deleted ──> its coordinator has deleted it (`group_errands`) ──> the finalizer goes

The coordinator takes a target (`groups.status.target_for`) if it fits and comes within ASSIGNMENT_TIMEOUT_MS; it makes
the same one itself else. So whoever waits for one comes first. One write for each object in one pass; targets and
conditions are one write.
"""

from collections.abc import Collection, Iterable, Mapping
from itertools import zip_longest

from headrace.core.control.group_actions import GroupAction, SetGroupFinalizers, TopicAction, WriteGroupStatus
from headrace.core.control.group_conditions import Situation, described
from headrace.core.control.group_errands import Wish, wish_of
from headrace.core.control.group_verdicts import Result, Verdict
from headrace.core.control.group_view import Coordinators, GroupView, Shapes
from headrace.core.control.offsets_topic import plan_offsets_topic
from headrace.core.control.staging_topics import plan_staging_topics
from headrace.core.groups.status import assigned, target_for
from headrace.core.resources.consumer_group import GROUP_FINALIZER, ConsumerGroup
from headrace.core.slotted import dataclass

_WAITED_SHARE = 8
"""Of so many writes one is for a group whose turn did not come before."""


@dataclass(frozen=True, slots=True)
class GroupPlan:
    topic: TopicAction | None
    """About one of the internal topics."""
    groups: tuple[GroupAction, ...]
    """Of different groups, which do not depend on each other; the most urgent first."""


def plan_groups(view: GroupView, verdicts: Mapping[Wish, Verdict], now_ms: int) -> GroupPlan:
    """`verdicts`: what came of what brokers were asked to do; `now_ms` is wall time."""
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
    """Targets first, but every so often who has `waited`: a flood of targets is not to hold up a finalizer for ever."""
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
    """Those about whom brokers can be asked: of a group without a coordinator nobody knows anything."""
    coordinators = Coordinators.of(view)
    return [group for group in view.ours if wish_of(group) is not None and not coordinators.trouble(group)]


def _assigns(action: GroupAction) -> bool:
    return isinstance(action, WriteGroupStatus) and action.assigns


def _marked(group: ConsumerGroup, coordinators: Coordinators, situation: Situation) -> SetGroupFinalizers | None:
    """The finalizer, where it is missing or has done its work."""
    finalizers = group.metadata.finalizers
    if not group.deleting:
        if GROUP_FINALIZER in finalizers:
            return None
        return SetGroupFinalizers(group, (*finalizers, GROUP_FINALIZER), "its offsets must go before it does")
    if GROUP_FINALIZER not in finalizers or not _is_deleted(coordinators, situation.verdict):
        return None
    others = tuple(name for name in finalizers if name != GROUP_FINALIZER)
    return SetGroupFinalizers(group, others, "nothing is left of it")


def _is_deleted(coordinators: Coordinators, verdict: Verdict | None) -> bool:
    """Whether the coordinator has said so, or nobody ever can have kept anything of it."""
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
    """When time alone changes something, by the clock of `now_ms`: a pause ends."""
    ends = (group.spec.paused_until_ms for group in view.ours if group.is_paused(now_ms))
    return min((end for end in ends if end is not None), default=None)
