"""The house's own number and name types, so that an offset is never taken for an epoch (house rule 7)."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, NewType

Offset = NewType("Offset", int)
"""Position of a record in its partition, from 0; never changes once it is assigned."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Rises with every election of a partition and is stamped into every batch; 0 means that nobody has led yet."""

PartitionEpoch = NewType("PartitionEpoch", int)
"""Version of a partition's (leader, ISR, replicas) record in its PartitionSet."""

BrokerId = NewType("BrokerId", int)
"""The ordinal of a broker's pod."""

Incarnation = NewType("Incarnation", int)
"""Number of a broker's life, from 1; every start of the process takes a greater one (Kafka's broker epoch)."""

PartitionId = NewType("PartitionId", int)

TopicUid = NewType("TopicUid", str)
"""`metadata.uid` of a Topic: a topic that is deleted and created again has another one."""

SetUid = NewType("SetUid", str)
"""`metadata.uid` of a PartitionSet, in the same way."""


class Acks(StrEnum):
    """The replicas that a produce request waits for; spelled as in the query."""

    NONE = "0"
    """Nothing: answered before the records are written."""
    LEADER = "1"
    """Written by the leader, to the page cache: a crash of its machine may lose them."""
    ALL = "all"
    """Committed: below the high watermark."""


class TopicName(NamedTuple):
    """A topic's full name. Written `namespace/name`. A tuple, because every request looks one up."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class PartitionKey(NamedTuple):
    """A partition's identity for as long as its data lives: the topic's uid, not its name. A tuple, as the name."""

    uid: TopicUid
    partition: PartitionId

    def __str__(self) -> str:
        return f"{self.uid}/{self.partition}"


@dataclass(frozen=True, slots=True, order=True)
class Seat:
    """A broker in one life of its process, holding a leadership or an ISR membership.

    A seat of an older incarnation than the broker's present one is void.
    """

    broker: BrokerId
    incarnation: Incarnation

    def __str__(self) -> str:
        return f"{self.broker}@{self.incarnation}"
