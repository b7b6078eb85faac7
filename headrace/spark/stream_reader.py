"""A streaming query on the driver: which offsets each micro-batch reads. Tasks read them as those of a batch query do.

Spark keeps positions in its checkpoint, and hands them back: this reader has nothing of its own that must survive, and
goes on after a restart wherever `start` says. Spark pickles one for its tasks, so it connects when it is first asked.

The reader reports to one `QueryProgress` how far the query is, from the query's own thread: an implementation neither
waits for long nor raises. Spark's checkpoint is the truth; this is for people. `GroupProgress` reports to a
ConsumerGroup of type Spark (option `group`).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from headrace.client.clock import now_ms
from headrace.client.groups.progress import ProgressReporter as Reporting
from headrace.core.types import PartitionId, PartitionKey, TopicUid
from headrace.spark import offsets
from headrace.spark.catalog import Catalog
from headrace.spark.offsets import Offsets, SourcePartition, from_json, shares, shares_by_bytes, split_ranges, to_json
from headrace.spark.options import Connection
from headrace.spark.read_options import StreamOptions
from headrace.spark.tasks import Reading


class QueryProgress(Protocol):
    def reached(self, offsets: Mapping[SourcePartition, int]) -> None:
        """Report that all below is done, in every partition that the query reads. It is called at each trigger,
        whatever its outcome: Spark reports its commits one batch late, and never a query's last one."""

    def close(self) -> None:
        """Close it as the query ends. Spark does not always call this."""


class Unreported:
    """The progress that is reported to no group."""

    def reached(self, offsets: Mapping[SourcePartition, int]) -> None:
        pass

    def close(self) -> None:
        pass


class GroupProgress:
    """The progress that is reported to a group. It connects with the first report: Spark makes readers that it never
    uses."""

    def __init__(self, group: str, connection: Connection) -> None:
        self._group, self._connection = group, connection
        self._reporting: Reporting | None = None

    def reached(self, offsets: Mapping[SourcePartition, int]) -> None:
        if self._reporting is None:
            self._reporting = Reporting(self._group, self._connection.servers(), self._connection.namespace)
        done = {PartitionKey(TopicUid(each.uid), PartitionId(each.number)): at for each, at in offsets.items()}
        self._reporting.report(done, {TopicUid(each.uid): each.topic for each in offsets})

    def close(self) -> None:
        if self._reporting is not None:
            self._reporting.close()


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: StreamOptions, reading: Reading) -> None:
        self._options, self._reading = options, reading
        self.progress: QueryProgress = (
            Unreported() if options.group is None else GroupProgress(options.group, reading.connection)
        )
        self._asked: Catalog | None = None
        self._target: Offsets | None = None
        """The end of `Trigger.AvailableNow`: nothing beyond is read."""
        self._latest: Offsets = {}
        """The latest offsets as they were last seen."""
        self._triggered_ms: int | None = None

    # -- positions ---------------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's names, here and below
        partitions = self._catalog.partitions(self._options.subscription)
        return to_json(self._catalog.at(self._options.start, partitions))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.max_offsets)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._catalog.latest(self._catalog.partitions(self._options.subscription))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return where the next micro-batch ends; `start` where there is nothing to do."""
        self._latest = self._available()
        begun = from_json(start)
        self.progress.reached(begun)
        going_on = offsets.positions_kept(begun, self._latest, self._options.loss)
        added = [partition for partition in self._latest if partition not in going_on]
        going_on |= self._catalog.earliest(added)
        waiting = {partition: max(0, self._latest[partition] - at) for partition, at in going_on.items()}
        if self._waits_for_more(sum(waiting.values()), limit):
            return start
        taken = waiting if isinstance(limit, ReadAllAvailable) else self._limited(going_on, waiting)
        return to_json({partition: at + taken.get(partition, 0) for partition, at in going_on.items()})

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return what is there, whatever the limit, for the query's progress."""
        return to_json(self._latest) or None

    def _available(self) -> Offsets:
        if self._target is not None:
            return self._target
        return self._catalog.latest(self._catalog.partitions(self._options.subscription))

    def _waits_for_more(self, waiting: int, limit: ReadLimit) -> bool:
        """Return whether `minOffsetsPerTrigger` holds this trigger back. A query that ends does not wait."""
        is_late = self._triggered_ms is None or now_ms() - self._triggered_ms >= self._options.max_delay_ms
        if (
            waiting >= self._options.min_offsets
            or is_late
            or self._target is not None
            or isinstance(limit, ReadAllAvailable)
        ):
            self._triggered_ms = now_ms()
            return False
        return True

    def _limited(
        self, positions: Mapping[SourcePartition, int], waiting: Mapping[SourcePartition, int]
    ) -> dict[SourcePartition, int]:
        taken = shares(waiting, self._options.max_offsets)
        if self._options.max_bytes is None:
            return taken
        sizes = {partition: self._catalog.record_bytes(partition, positions[partition]) for partition in taken}
        by_bytes = shares_by_bytes({each: waiting[each] for each in taken}, sizes, self._options.max_bytes)
        return {partition: min(count, by_bytes[partition]) for partition, count in taken.items()}

    # -- micro-batches -----------------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begun, ends = from_json(start), from_json(end)
        beginnings = self._catalog.earliest(partition for partition in ends if partition not in begun)
        ranges = offsets.micro_batch_ranges(begun, ends, beginnings, self._options.loss)
        self.progress.reached(begun)  # A batch that is done again after a restart may take long.
        options = self._options
        cut = split_ranges(ranges, min_partitions=options.min_partitions, max_records=options.max_records)
        return [InputPartition(each) for each in cut]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._reading.read(partition.value)

    def stop(self) -> None:
        self.progress.close()
        if self._asked is not None:
            self._asked.close()

    @property
    def _catalog(self) -> Catalog:
        if self._asked is None:
            self._asked = Catalog(self._reading.connection)
        return self._asked
