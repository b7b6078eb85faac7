"""Who is told how far a query is. Spark's own checkpoint is the truth; this is for people.

A stream reader holds one `Progress`, on the driver, and calls it from the query's own thread: an implementation neither
waits for long nor raises. `GroupProgress` tells a ConsumerGroup of type Spark (option `group`).
"""

from collections.abc import Mapping
from typing import Protocol

from headrace.client.groups.progress import ProgressReporter as Reporting
from headrace.core.types import PartitionId, PartitionKey, TopicUid
from headrace.spark.offsets import Partition
from headrace.spark.options import Connection


class Progress(Protocol):
    def reached(self, offsets: Mapping[Partition, int]) -> None:
        """All below is done, in every partition that the query reads. Told at each trigger, whatever comes of it: what
        Spark commits it says one batch late, and never of a query's last one."""

    def close(self) -> None:
        """The query ends. Spark does not always say so."""


class Unreported:
    """Nobody is told."""

    def reached(self, offsets: Mapping[Partition, int]) -> None:
        pass

    def close(self) -> None:
        pass


class GroupProgress:
    """A group is told. Connects when there is something to tell: Spark makes readers that it never asks."""

    def __init__(self, group: str, connection: Connection) -> None:
        self._group, self._connection = group, connection
        self._reporting: Reporting | None = None

    def reached(self, offsets: Mapping[Partition, int]) -> None:
        if self._reporting is None:
            self._reporting = Reporting(self._group, self._connection.servers(), self._connection.namespace)
        done = {PartitionKey(TopicUid(each.uid), PartitionId(each.number)): at for each, at in offsets.items()}
        self._reporting.report(done, {TopicUid(each.uid): each.topic for each in offsets})

    def close(self) -> None:
        if self._reporting is not None:
            self._reporting.close()
