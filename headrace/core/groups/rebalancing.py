"""The way from a group's members to their partitions: epochs, targets, and the steps to the target.

    members, subscriptions, topics, assignor or pause change ──> the epoch rises ──> assigning
    assigning ── the operator's target fits, or ASSIGNMENT_TIMEOUT_MS is over ──> it is committed ──> reconciling
    reconciling ── all members gave up what they must, and got what is free ──> stable
    the last member goes ──> empty

Many changes at once cost one assignment: the timeout counts from the first of them. The coordinator makes a target with
the assignors of `assignment`, the operator with the same ones from the ConsumerGroup's status; `misfit` returns why an
offered one cannot be taken. `Sharing` is owned by one `Group`, which calls `settle` at the end of each step.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from headrace.core.groups.assignment import (
    Assignment,
    Partitions,
    Subscriber,
    Subscription,
    assign,
    bounded,
    partitions_of,
)
from headrace.core.groups.entries import GroupValue, Image, Inputs, TargetKey, TargetRecord
from headrace.core.groups.identity import GroupEpoch, GroupSettings, GroupState, MemberId, TopicShape
from headrace.core.groups.members import Draft, advance
from headrace.core.groups.sessions import NEVER, Sessions

ASSIGNMENT_TIMEOUT_MS = 500
"""The time that the coordinator waits for the operator's assignment before it makes its own."""


def consumed(subscriptions: Iterable[Subscription], topics: Mapping[str, TopicShape]) -> dict[str, TopicShape]:
    """Return the topics that exist and that a member subscribes to, as far as one group may have so many."""
    names: set[str] = set()
    for subscription in set(subscriptions):
        names |= subscription.resolve(topics)
    return bounded({name: topics[name] for name in names})


def target_of(image: Image, inputs: Inputs) -> Assignment:
    """Return the target by the group's assignor; it is empty for all while the group is paused."""
    if inputs.paused:
        return dict.fromkeys(image.members, frozenset())
    return assign(inputs.assignor, _subscribers(image, inputs), inputs.topics)


def misfit(offered: Mapping[MemberId, Partitions], epoch: GroupEpoch, image: Image) -> str:
    """Return why a target that was made elsewhere cannot be taken; empty where it fits."""
    group = image.group
    if epoch != group.epoch or group.assignment_epoch == group.epoch:
        return f"it is for epoch {epoch}; the group is in {group.epoch}, assigned up to {group.assignment_epoch}"
    if offered.keys() != image.members.keys():
        return f"members differ: {', '.join(sorted(offered.keys() ^ image.members.keys()))}"
    return _misfit_of_partitions(offered, image, group)


def _misfit_of_partitions(offered: Mapping[MemberId, Partitions], image: Image, group: GroupValue) -> str:
    wanted = [] if group.inputs.paused else [*group.inputs.topics.items()]
    topics = {partition: name for name, shape in wanted for partition in partitions_of(shape)}
    given = [partition for partitions in offered.values() for partition in partitions]
    if len(given) != len(topics) or set(given) != topics.keys():
        return f"it gives {len(given)} partitions, {len(topics)} are to be given, each once"
    for member, subscriber in _subscribers(image, group.inputs).items():
        foreign = {topics[partition] for partition in offered[member]} - subscriber.topics
        if foreign:
            return f"{member} does not subscribe to {min(foreign)}"
    return ""


def _subscribers(image: Image, inputs: Inputs) -> dict[MemberId, Subscriber]:
    resolved = {
        subscription: subscription.resolve(inputs.topics)
        for subscription in {member.subscription for member in image.members.values()}
    }
    return {
        member: Subscriber(resolved[value.subscription], image.target(member), value.instance)
        for member, value in image.members.items()
    }


class Sharing:
    def __init__(self, draft: Draft, sessions: Sessions) -> None:
        self._draft = draft
        self._image = draft.image
        self._sessions = sessions
        self._topics: Mapping[str, TopicShape] | None = None
        """The topics; None: not known yet, and those of the log count."""
        self._settings: GroupSettings | None = None
        self._assign_by_ms: int | None = None
        self._unsettled = set(draft.image.members)
        """The members that may not be where the target wants them."""
        self._look_again = True
        """True where the inputs of a target may have changed."""

    @property
    def state(self) -> GroupState:
        if not self._image.is_known:
            return GroupState.DEAD
        if not self._image.members:
            return GroupState.EMPTY
        if self._is_assigning:
            return GroupState.ASSIGNING
        return GroupState.RECONCILING if self._unsettled else GroupState.STABLE

    @property
    def due_ms(self) -> int:
        """Return when time alone changes something."""
        is_paused = self._image.members and self._image.group.inputs.paused
        ends_ms = self._settings.paused_until_ms if self._settings is not None and is_paused else None
        return min(self._assign_by_ms or NEVER, ends_ms or NEVER)

    def see_topics(self, topics: Mapping[str, TopicShape]) -> None:
        self._topics = topics
        self._look_again = True

    def configure(self, settings: GroupSettings) -> None:
        self._settings = settings
        self._look_again = True

    def offer(self, epoch: GroupEpoch, target: Mapping[MemberId, Partitions]) -> str:
        """Take the operator's target. Return why it is not taken; empty where it is, or was."""
        if epoch == self._image.group.assignment_epoch and target == self._image.targets:
            return ""
        problem = misfit(target, epoch, self._image)
        if not problem:
            self._assign(target, "the operator's target")
        return problem

    def settle(self, now_ms: int, wall_ms: int) -> None:
        """Go on as far as can be. Nothing happens, and nothing is checked, where nothing changed."""
        self._maybe_rise(now_ms, wall_ms)
        if not self._is_assigning:
            self._assign_by_ms = None
        else:
            # A coordinator that has just read its log waits as well: the operator may be about to answer.
            by_ms = self._assign_by_ms = self._assign_by_ms or now_ms + ASSIGNMENT_TIMEOUT_MS
            if now_ms >= by_ms:
                self._assign(target_of(self._image, self._image.group.inputs), "no target came in time")
        if self._draft.touched:
            self.reconcile(now_ms)

    def reconcile(self, now_ms: int) -> None:
        """Bring all members as far as can be; one that is to give something up has its rebalance timeout for it."""
        image = self._image
        self._unsettled |= self._draft.moved
        self._unsettled &= image.members.keys()
        while sum(map(self._advance, sorted(self._unsettled))):
            pass
        for member in [*self._unsettled]:
            current, session = image.currents[member], self._sessions.by_member[member]
            if not current.revoking:
                session.revoke_by_ms = None
                if current.assigned.keys() == image.target(member):
                    self._unsettled.remove(member)
            elif session.revoke_by_ms is None:
                session.revoke_by_ms = now_ms + image.members[member].rebalance_timeout_ms
                session.unaware_until_ms = session.expires_ms

    @property
    def _is_assigning(self) -> bool:
        return bool(self._image.members) and self._image.group.assignment_epoch < self._image.group.epoch

    def _maybe_rise(self, now_ms: int, wall_ms: int) -> None:
        image, regrouped = self._image, self._draft.regrouped
        if regrouped or self._look_again or image.group.inputs.paused != self._is_paused(now_ms):
            inputs = self._inputs(now_ms)
            self._look_again = False
            if regrouped or (image.members and inputs != image.group.inputs):
                raised = replace(image.group, epoch=self._draft.next_epoch, inputs=inputs)
                self._draft.put_group(raised if image.members else _emptied(raised, wall_ms), "the group changed")

    def _inputs(self, now_ms: int) -> Inputs:
        before = self._image.group.inputs
        topics = before.topics if self._topics is None else self._topics
        found = consumed((member.subscription for member in self._image.members.values()), topics)
        assignor = before.assignor if self._settings is None else self._settings.assignor
        return Inputs(found, assignor, self._is_paused(now_ms))

    def _is_paused(self, now_ms: int) -> bool:
        if self._settings is None:
            return self._image.group.inputs.paused
        return self._settings.paused_until_ms is not None and now_ms < self._settings.paused_until_ms

    def _assign(self, target: Mapping[MemberId, Partitions], reason: str) -> None:
        self._unsettled |= target.keys()
        self._assign_by_ms = None
        for member in sorted(target):
            if self._image.targets.get(member) != target[member]:
                self._draft.put(TargetRecord(TargetKey(self._image.name, member), target[member]), reason)
        self._draft.put_group(replace(self._image.group, assignment_epoch=self._image.group.epoch), reason)

    def _advance(self, member: MemberId) -> bool:
        image = self._image
        current = image.currents[member]
        ahead = advance(
            current, image.target(member), image.group.assignment_epoch, lambda p: image.owners.get(p, member) == member
        )
        if ahead is not current:
            self._draft.put_current(member, ahead, f"{member} goes on")
        return ahead is not current


def _emptied(value: GroupValue, wall_ms: int) -> GroupValue:
    """Return the value without members: offsets age from now on."""
    return replace(value, assignment_epoch=value.epoch, empty_since_ms=wall_ms)
