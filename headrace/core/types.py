"""Headrace's own types of numbers, names and records, so that an offset is never taken for an epoch.

A `RecordContent` is one record as people and programs that work record by record hold it; batches stay in columns.
`topic_name_problem` and its like return what is wrong with a name before the API server refuses it; the API server
decides. Nearly every program loads this module, so it imports nothing but `limits`.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, NewType

NAME_LENGTH_MAX = 63


Offset = NewType("Offset", int)
"""The position of a record in its partition, from 0; never changes once it is assigned."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""The number of an election of a partition, stamped into every batch; it rises with each, and 0 means that there was no
leader yet."""

PartitionEpoch = NewType("PartitionEpoch", int)
"""The version of a partition's (leader, ISR, replicas) record in its PartitionSet."""

BrokerId = NewType("BrokerId", int)
"""The ordinal of a broker's pod."""

Incarnation = NewType("Incarnation", int)
"""The number of a broker's life, from 1; every start of the process takes a greater one (Kafka's broker epoch)."""

PartitionId = NewType("PartitionId", int)

TopicUid = NewType("TopicUid", str)
"""The `metadata.uid` of a Topic: a topic that is deleted and created again has another one."""

SetUid = NewType("SetUid", str)
"""The `metadata.uid` of a PartitionSet, in the same way."""
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
RecordHeaders = tuple[tuple[str, bytes | None], ...]
"""The names and values in the order they were written; a name may come twice."""


class Acks(StrEnum):
    """The replicas that a produce request waits for; spelled as in the query."""

    NONE = "0"
    """Wait for nothing: the answer comes before the records are written."""
    LEADER = "1"
    """Wait for the leader to write to the page cache: a crash of its machine may lose the records."""
    ALL = "all"
    """Wait until the records are committed: below the high watermark."""


class TopicName(NamedTuple):
    """A topic's full name, written `namespace/name`. A tuple, because every request looks one up."""

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


def topic_name_problem(name: str) -> str | None:
    """Return why Kubernetes would refuse a topic of this name, in a sentence, with one that would do; None: it would
    not."""
    return _name_problem(name, "topic")


def group_name_problem(name: str) -> str | None:
    """Return the same for a consumer group."""
    return _name_problem(name, "group")


def namespace_problem(name: str) -> str | None:
    """Return the same for a namespace."""
    return _name_problem(name, "namespace")


def _name_problem(name: str, kind: str) -> str | None:
    if _DNS_LABEL.fullmatch(name) and len(name) <= NAME_LENGTH_MAX:
        return None
    suggestion = re.sub(r"[^a-z0-9]+", "-", name.lower())[:NAME_LENGTH_MAX].strip("-")
    remedy = f"; try {suggestion}" if suggestion else ""
    return (
        f"{name!r} cannot name a {kind}, which is a Kubernetes resource, so that its name is a DNS label: lower-case"
        f" letters, digits and '-' in between, at most {NAME_LENGTH_MAX} characters{remedy}"
    )


@dataclass(frozen=True, slots=True)
class RecordContent:
    """A record without its place: topic, partition and offset belong to where it was read from."""

    key: bytes | None
    value: bytes | None
    """The value; None is a tombstone: compaction forgets the key."""
    timestamp_ms: int
    """The milliseconds since 1970-01-01 UTC."""
    headers: RecordHeaders = ()
