"""What a request knows of its partition, checked against what is true now (KIP-320).

Clients send the topic's uid and the leader epoch that they know. A mismatch is refused with what is true now, before
anything else happens, so that a client with an old view can neither write to nor read from another history.
"""

from headrace.core.errors import FencedEpochError, StaleTopicError
from headrace.core.slotted import dataclass
from headrace.core.types import LeaderEpoch, TopicUid


@dataclass(frozen=True, slots=True)
class Fence:
    """None means that the client does not say."""

    topic_uid: TopicUid | None = None
    leader_epoch: LeaderEpoch | None = None

    def check_topic(self, label: str, actual: TopicUid) -> None:
        """Raises StaleTopicError. `label` is the topic as people write it."""
        if self.topic_uid is not None and self.topic_uid != actual:
            raise StaleTopicError(
                f"topicUid {self.topic_uid} is not that of topic {label}: it was deleted and created again, and is"
                f" {actual} now; start over with its new offsets",
                topicUid=actual,
            )

    def check_epoch(self, label: str, actual: LeaderEpoch) -> None:
        """Raises FencedEpochError. `label` is the partition as people write it."""
        if self.leader_epoch is not None and self.leader_epoch != actual:
            raise FencedEpochError(
                f"leaderEpoch {self.leader_epoch} is not that of {label}, which is {actual} now; read the topic's"
                " metadata again",
                leaderEpoch=actual,
            )
