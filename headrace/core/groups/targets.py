"""What everybody in a group is to have: from what it is made, how the coordinator makes it, and whether one that the
operator made fits. Pure; the operator makes its own with the same functions, from the ConsumerGroup's status.
"""

from collections.abc import Iterable, Mapping

from headrace.core.groups.assigning import Assignment, Partitions, Subscriber, assign, partitions_of
from headrace.core.groups.entries import GroupValue, Inputs
from headrace.core.groups.identity import GroupEpoch, MemberId, TopicShape
from headrace.core.groups.image import Image
from headrace.core.groups.subscriptions import Subscription, bounded


def consumed(subscriptions: Iterable[Subscription], topics: Mapping[str, TopicShape]) -> dict[str, TopicShape]:
    """The topics that exist and that somebody subscribes to, as far as one group may have so many."""
    names: set[str] = set()
    for subscription in set(subscriptions):
        names |= subscription.resolve(topics)
    return bounded({name: topics[name] for name in names})


def target_of(image: Image, inputs: Inputs) -> Assignment:
    """By the group's assignor; nothing for anybody while the group is paused."""
    if inputs.paused:
        return dict.fromkeys(image.members, frozenset())
    return assign(inputs.assignor, _subscribers(image, inputs), inputs.topics)


def misfit(offered: Mapping[MemberId, Partitions], epoch: GroupEpoch, image: Image) -> str:
    """Why a target that was made elsewhere cannot be taken; empty where it fits."""
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
