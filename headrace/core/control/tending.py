"""What becomes of a topic's placed partitions in one pass: elections, the last resort, moves; one write per set.

Both look at the whole topic and change partitions one by one; a partition that an election has changed moves in the
next pass, which sees the new leader. Nothing is remembered: the same picture gives the same sets, and a set that needs
no change comes back as it is. Called by `headrace.core.control.plan`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field

from headrace.core.control.actions import ReplaceSet
from headrace.core.control.announcing import announce
from headrace.core.control.changing import Budget, Change, leaders_of
from headrace.core.control.electing import Elections
from headrace.core.control.last_resort import resort
from headrace.core.control.observed import Observed
from headrace.core.control.preferring import preference_of
from headrace.core.control.reassigning import Unfinished, reassign
from headrace.core.placement.spread import Load
from headrace.core.resources.partition_set import PartitionSet
from headrace.core.resources.topic import Topic
from headrace.core.slotted import dataclass
from headrace.core.types import PartitionId

_REASONS_MAX = 3
"""Reasons that one write gives for the log; the rest is counted."""


@dataclass(frozen=True, slots=True)
class Tended:
    writes: tuple[ReplaceSet, ...]
    """At most one for each set."""
    unfinished: Unfinished = field(default_factory=Unfinished)


@dataclass(frozen=True, slots=True)
class Round:
    """What a pass knows beside the topic itself."""

    observed: Observed
    budget: Budget
    others: Load
    """What all other topics load the brokers with."""


def tend(topic: Topic, sets: Sequence[PartitionSet], around: Round) -> Tended:
    """The writes that bring `sets`, all of the topic, on by one step."""
    spec = topic.spec
    states = [state for partition_set in sets for state in partition_set.partitions]
    elections = Elections(spec, around.observed, around.budget, leaders_of(states, around.observed))
    elected = {state.id: change for state in states if (change := elections.look_at(state))}
    for partition_set in sets:
        for state in partition_set.partitions:
            resorted = resort(spec, partition_set, state, around.observed)
            if resorted is not None:
                elected[state.id] = resorted
    now = [elected[state.id].state if state.id in elected else state for state in states]
    preferred = preference_of(topic, now).wanted
    moved = reassign(spec, now, around.observed, around.budget, around.others, preferred)
    return Tended(_writes(sets, {**moved.changes, **elected}), moved.unfinished)


def _writes(sets: Sequence[PartitionSet], changes: Mapping[PartitionId, Change]) -> tuple[ReplaceSet, ...]:
    writes = []
    for partition_set in sets:
        own = [changes[state.id] for state in partition_set.partitions if state.id in changes]
        if own:
            changed = partition_set.with_partitions(*(change.state for change in own))
            kinds = tuple(kind for change in own for kind in change.kinds)
            writes.append(ReplaceSet(changed, _reason(own), announce(own), kinds))
    return tuple(writes)


def _reason(changes: Sequence[Change]) -> str:
    told = "; ".join(f"partition {change.state.id}: {change.reason}" for change in changes[:_REASONS_MAX])
    more = len(changes) - _REASONS_MAX
    return f"{told}; and {more} more partitions" if more > 0 else told
