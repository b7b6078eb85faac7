"""The deletion of a topic, by its `deletionPolicy`.

`Delete`: the finalizer holds the Topic; every set is marked `deleting`; brokers delete the data and take themselves out
of `replicas`; when none is left, or the wait is over, the sets go, then the finalizer. `Retain`: no mark, no finalizer,
the sets go. Data that was not deleted is orphaned by its brokers, and never lost.
"""

from collections.abc import Sequence
from dataclasses import replace

from headrace.core.control.actions import Action, DeleteSet, Notice, ReplaceSet, SetFinalizers
from headrace.core.resources.partition_set import PartitionSet
from headrace.core.resources.topic import DeletionPolicy, Places, Topic

FINALIZER = "headrace.io/delete-data"


def keep_marks(topic: Topic, places: Places) -> SetFinalizers | None:
    """Return the marks that a topic must have before `places.begun` of its partitions have places: that they may have
    (`Places`), and the finalizer that its policy asks for, or not."""
    rises = places.begun > topic.places.begun
    finalizers = (*_without_ours(topic), *([FINALIZER] if topic.spec.deletion_policy is DeletionPolicy.DELETE else []))
    if {*finalizers} == {*topic.metadata.finalizers}:
        return confirm_places(topic, places) if rises else None
    reason = "its data must be deleted before the topic goes" if FINALIZER in finalizers else "its data is retained"
    notes = topic.noted(_raised(topic, places)) if rises else {}
    return SetFinalizers(topic, finalizers, reason, annotations=notes)


def confirm_places(topic: Topic, places: Places) -> SetFinalizers | None:
    """Return the write that records how many of a topic's partitions have places."""
    raised = _raised(topic, places)
    if raised == topic.places:
        return None
    reason = f"{raised.seen} partitions have places, and {raised.begun} may have"
    return SetFinalizers(topic, topic.metadata.finalizers, reason, annotations=topic.noted(raised))


def delete_topic(topic: Topic, sets: Sequence[PartitionSet], *, overdue: bool) -> list[Action]:
    """Return the next steps for a Topic that has a deletionTimestamp."""
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


def _raised(topic: Topic, places: Places) -> Places:
    return Places(max(topic.places.seen, places.seen), max(topic.places.begun, places.begun))
