"""How a topic goes, as `api.md` has it.

`Delete`: the finalizer holds the Topic; every set is marked `deleting`; brokers delete the data and take themselves out
of `replicas`; when none is left, or the wait is over, the sets go, then the finalizer. `Retain`: no mark, no finalizer,
the sets go. Data that nobody deleted is orphaned by its brokers, never lost by us.
"""

from collections.abc import Sequence
from dataclasses import replace

from headrace.core.control.actions import Action, DeleteSet, Notice, ReplaceSet, SetFinalizers
from headrace.core.resources.partition_set import PartitionSet
from headrace.core.resources.topic import DeletionPolicy, Topic

FINALIZER = "headrace.io/delete-data"


def keep_finalizer(topic: Topic) -> SetFinalizers | None:
    """The write that gives a placed topic the finalizer that its policy asks for, or takes it."""
    wanted = topic.spec.deletion_policy is DeletionPolicy.DELETE
    if wanted == (FINALIZER in topic.metadata.finalizers):
        return None
    if wanted:
        finalizers = (*topic.metadata.finalizers, FINALIZER)
        return SetFinalizers(topic, finalizers, "its data must be deleted before the topic goes")
    return SetFinalizers(topic, _without_ours(topic), "its data is retained")


def delete_topic(topic: Topic, sets: Sequence[PartitionSet], *, overdue: bool) -> list[Action]:
    """The next steps for a Topic that has a deletionTimestamp."""
    if topic.spec.deletion_policy is DeletionPolicy.DELETE and not overdue:
        marked = [s if s.deleting else replace(s, deleting=True) for s in sets]
        marks: list[Action] = [
            ReplaceSet(mark, "tell the brokers to delete the data") for mark in marked if mark not in sets
        ]
        if marks or _remaining(sets):
            return marks
    return [*(DeleteSet(s, "the topic is deleted") for s in sets), *_let_go(topic, sets)]


def _let_go(topic: Topic, sets: Sequence[PartitionSet]) -> list[SetFinalizers]:
    if FINALIZER not in topic.metadata.finalizers:
        return []
    silent = _remaining(sets) if topic.spec.deletion_policy is DeletionPolicy.DELETE else []
    notices: tuple[Notice, ...] = ()
    if silent:
        brokers = ", ".join(map(str, silent))
        message = f"brokers that did not confirm in time: {brokers}; they keep the data in orphaned/ for a while"
        notices = (Notice("DataNotDeleted", message, warning=True),)
    return [SetFinalizers(topic, _without_ours(topic), "nothing holds the topic any more", notices)]


def _remaining(sets: Sequence[PartitionSet]) -> list[int]:
    return sorted({broker for s in sets for state in s.partitions for broker in state.replicas})


def _without_ours(topic: Topic) -> tuple[str, ...]:
    return tuple(name for name in topic.metadata.finalizers if name != FINALIZER)
