"""How one member gets from what it has to what it is to have: give up first, then be given (KIP-848). Pure.

    settled ── the target lacks something it has ──> revoking ── it says so itself, or it is away ──> waiting, settled
       └─────── the target has something more ──> waiting (for others to give up) ── each that is free ──> settled

A member's epoch stays while it gives up, so that it can still commit what it has read; it becomes the assignment's
epoch with what the member is given next. While it gives up, a newer target waits. What it says counts only with the
(epoch, revision) of the last answer: a heartbeat that was sent earlier, and comes late, gives nothing up.

Invariant: what a member may believe to own is in `assigned` or `revoking` of its record, from before it is told until
after it says that it gave it up. Called by `members` and `sharing`.
"""

from collections.abc import Callable
from dataclasses import replace

from headrace.core.groups.assigning import Partitions
from headrace.core.groups.entries import CurrentValue
from headrace.core.groups.identity import GroupEpoch
from headrace.core.types import PartitionKey


def has_given_up(current: CurrentValue, owned: Partitions) -> CurrentValue:
    """The member has seen `current`, and owns this: what of `revoking` it does not own is free."""
    left = {partition: epoch for partition, epoch in current.revoking.items() if partition in owned}
    return replace(current, revoking=left)


def advance(
    current: CurrentValue, target: Partitions, assignment_epoch: GroupEpoch, is_free: Callable[[PartitionKey], bool]
) -> CurrentValue:
    """The next step, or `current` where there is none. `is_free`: nobody else has it."""
    if current.revoking:
        return current
    kept = {partition: epoch for partition, epoch in current.assigned.items() if partition in target}
    if len(kept) < len(current.assigned) and not current.away:
        given_up = {partition: epoch for partition, epoch in current.assigned.items() if partition not in target}
        return replace(current, assigned=kept, revoking=given_up)
    epoch = max(current.epoch, assignment_epoch)
    given = {partition: epoch for partition in target if partition not in kept and is_free(partition)}
    if epoch == current.epoch and not given and len(kept) == len(current.assigned):
        return current
    return replace(current, epoch=epoch, assigned=kept | given)


def may_commit(current: CurrentValue, partition: PartitionKey, epoch: GroupEpoch) -> bool:
    """Whether a commit that the member made in `epoch` is no late one: it has had the partition without interruption
    since (KIP-1251)."""
    since = current.assigned.get(partition, current.revoking.get(partition))
    return since is not None and since <= epoch <= current.epoch
