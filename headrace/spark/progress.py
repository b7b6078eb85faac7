"""Who is told how far a query is. Spark's own checkpoint is the truth; this is for people.

A stream reader holds one `Progress`, on the driver, and calls it from the query's own thread: an implementation neither
waits for long nor raises.
"""

from collections.abc import Mapping
from typing import Protocol

from headrace.spark.offsets import Partition


class Progress(Protocol):
    def planned(self, start: Mapping[Partition, int], end: Mapping[Partition, int]) -> None:
        """A micro-batch reads from `start` up to `end`; all below `start` is done. May come again after a restart."""

    def committed(self, end: Mapping[Partition, int]) -> None:
        """All below `end` is done. Spark says so one batch late, and never of a query's last one."""

    def close(self) -> None:
        """The query ends. Spark does not always say so."""


class Unreported:
    """Nobody is told."""

    def planned(self, start: Mapping[Partition, int], end: Mapping[Partition, int]) -> None:
        pass

    def committed(self, end: Mapping[Partition, int]) -> None:
        pass

    def close(self) -> None:
        pass
