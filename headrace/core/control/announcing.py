"""What people hear of the changes in one PartitionSet: few Events, however many partitions a broker takes with it.

One for all partitions that changed leaders for the same cause, and one for all that lost records in the same way.
What only the topic's conditions tell (offline, under-replicated, reassigned) is announced with those.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Final

from headrace.core.control.actions import Notice
from headrace.core.control.changing import Change, ChangeKind
from headrace.core.resources.partition_set import PartitionState
from headrace.core.types import BrokerId

_LISTED_MAX: Final = 10
"""Partitions that a message names; the rest is counted."""
_REASONS: Final = {
    ChangeKind.ELECTED: "LeaderElected",
    ChangeKind.MOVED: "LeaderMoved",
    ChangeKind.RETURNED: "LeaderReturned",
}
_LOSSES: Final = {ChangeKind.ELECTED_UNCLEANLY: "UncleanLeaderElection", ChangeKind.RESORTED: "RecordsMayBeLost"}


def announce(changes: Sequence[Change]) -> tuple[Notice, ...]:
    """`changes` are those of one write."""
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
    """`partition 3`, or `partitions 0, 1, 2`; of many, the first."""
    ids = [str(state.id) for state in states]
    shown = ", ".join(ids[:_LISTED_MAX])
    more = f" and {len(ids) - _LISTED_MAX} more" if len(ids) > _LISTED_MAX else ""
    return f"partitions {shown}{more}" if len(ids) > 1 else f"partition {shown}"


def named_brokers(brokers: Sequence[BrokerId]) -> str:
    """`broker 3`, or `brokers 0, 1`, in the order given."""
    return f"broker{'s' if len(brokers) > 1 else ''} {', '.join(map(str, brokers))}"
