"""The internal topics of staged commits, once a broker has made them for the first writer: that they stay as they must.

Nothing holds them against being deleted, as groups hold theirs: a broker makes them anew for the next writer, and what
was staged or decided is gone, as `docs/spark.md` says. Pure and level-triggered: one write in one pass.
"""

from collections.abc import Mapping
from typing import Final

from headrace.core.control.group_actions import PatchTopic
from headrace.core.control.group_view import GroupView
from headrace.core.control.keeping import Needs, kept, label_of
from headrace.core.limits import OFFSETS_MESSAGE_BYTES, OFFSETS_SEGMENT_BYTES, STAGING_MESSAGE_BYTES
from headrace.core.resources.topic import CleanupPolicy, Topic
from headrace.core.staging.identity import COMMITS_TOPIC, STAGING_TOPIC

_NEEDS: Final[Mapping[str, Needs]] = {
    COMMITS_TOPIC: Needs(
        whose="writers depend on it",
        cleanup_policy=CleanupPolicy.COMPACT,
        message_bytes=OFFSETS_MESSAGE_BYTES,
        segment_bytes=OFFSETS_SEGMENT_BYTES,
        why={
            "cleanupPolicy": "old records are how far writers are",
            "maxMessageBytes": "a decision is one batch",
            "deletionPolicy": "decisions stay when somebody deletes it",
            "segment": "a new coordinator reads all of one",
            "uncleanLeaderElection": "a batch whose decision is lost would be written twice",
        },
    ),
    STAGING_TOPIC: Needs(
        whose="writers depend on it",
        cleanup_policy=CleanupPolicy.DELETE,
        message_bytes=STAGING_MESSAGE_BYTES,
        keeps_all=True,
        why={
            "cleanupPolicy": "records with the same key are all wanted",
            "maxMessageBytes": "whatever a topic takes can be staged",
            "retention": "coordinators delete what nobody needs, and nobody else may",
            "deletionPolicy": "what is committed stays when somebody deletes it",
            "uncleanLeaderElection": "records that are committed would be lost",
        },
    ),
}


def plan_staging_topics(view: GroupView) -> PatchTopic | None:
    """The next write, if one is needed."""
    for topic in view.topics:
        needs = _NEEDS.get(topic.metadata.name)
        if needs is None or topic.metadata.namespace != view.home or not _is_kept(topic, view):
            continue
        write = kept(topic, needs, view.observed, label_of(topic), topic.spec.partitions)
        if write is not None:
            return write
    return None


def _is_kept(topic: Topic, view: GroupView) -> bool:
    going = topic.metadata.deletion_timestamp is not None
    return topic.spec.cluster == view.observed.cluster and not topic.paused and not going
