"""`partition.json`: whose data a partition's directory holds, for people and for the day when the API object is gone.

    {"format": 1, "namespace": "default", "name": "flights", "uid": "6f...", "partition": 3, "spec": {...}}

`spec` is the topic's, spelled as in the resource; the deletion policy in it decides whether orphaned data may ever be
deleted. The uid and the partition are in the directory's name too, so the file may be lost without losing the data.
"""

import json
from dataclasses import dataclass
from typing import Any, Final, Self

from headrace.core.log.checkpoints import DamagedFileError
from headrace.core.resources.topic import DeletionPolicy, Durability
from headrace.core.types import PartitionId, PartitionKey, TopicName, TopicUid

DESCRIPTION_FILE: Final = "partition.json"
_FORMAT = 1


def directory_name(key: PartitionKey) -> str:
    return f"{key.uid}-{key.partition}"


def parse_directory_name(name: str) -> PartitionKey | None:
    """None for a name that is not a partition's."""
    uid, dash, partition = name.rpartition("-")
    if not (uid and dash and partition.isascii() and partition.isdecimal()):
        return None
    return PartitionKey(TopicUid(uid), PartitionId(int(partition)))


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    topic: TopicName
    key: PartitionKey
    spec: dict[str, Any]
    """The topic's spec as it was last seen."""

    @property
    def deletion_policy(self) -> DeletionPolicy:
        """`Retain` where the spec says something that this version does not know."""
        try:
            return DeletionPolicy(self.spec.get("deletionPolicy", DeletionPolicy.DELETE))
        except ValueError:
            return DeletionPolicy.RETAIN

    @property
    def is_synced(self) -> bool:
        """Whether what is acknowledged is on disk (durability Fsync, which is the default too)."""
        return str(self.spec.get("durability", Durability.FSYNC)) == Durability.FSYNC

    def format(self) -> bytes:
        document = {
            "format": _FORMAT,
            "namespace": self.topic.namespace,
            "name": self.topic.name,
            "uid": self.key.uid,
            "partition": self.key.partition,
            "spec": self.spec,
        }
        return json.dumps(document, indent=2).encode() + b"\n"

    @classmethod
    def parse(cls, content: bytes) -> Self:
        """Raises DamagedFileError."""
        try:
            document = json.loads(content)
            if document["format"] != _FORMAT:
                raise DamagedFileError(f"format is {document['format']}, this version reads {_FORMAT}")
            topic = TopicName(str(document["namespace"]), str(document["name"]))
            key = PartitionKey(TopicUid(str(document["uid"])), PartitionId(int(document["partition"])))
            return cls(topic, key, dict(document["spec"]))
        except (ValueError, TypeError, KeyError) as error:
            raise DamagedFileError(f"it is no description of a partition: {error!r}") from error
