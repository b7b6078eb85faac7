"""A batch query: what it reads is fixed on the driver, once, and read by tasks."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from headrace.spark.bounds import AtOffsets
from headrace.spark.catalog import Catalog
from headrace.spark.filters import Pushed
from headrace.spark.plans import planned
from headrace.spark.ranges import OffsetRange, split
from headrace.spark.read_options import BatchOptions
from headrace.spark.tasks import Reading


class BatchReader(DataSourceReader):
    def __init__(self, options: BatchOptions, reading: Reading) -> None:
        self._options, self._reading = options, reading
        self._pushed = Pushed()

    def partitions(self) -> list[InputPartition]:
        options = self._options
        with closing(Catalog(self._reading.connection)) as catalog:
            ranges = self._ranges(catalog)
        cut = split(ranges, min_partitions=options.min_partitions, max_records=options.max_records)
        return [InputPartition(each) for each in cut]

    def _ranges(self, catalog: Catalog) -> list[OffsetRange]:
        options, pushed = self._options, self._pushed
        partitions = [each for each in catalog.partitions(options.subscription) if pushed.takes(each.number)]
        starts, ends = catalog.at(options.start, partitions), catalog.at(options.end, partitions)
        # Whatever brokers told is there; only of offsets that somebody wrote it must be asked.
        earliest = catalog.earliest(partitions) if isinstance(options.start, AtOffsets) else {}
        is_told = isinstance(options.start, AtOffsets) or isinstance(options.end, AtOffsets)
        latest = catalog.latest(partitions) if is_told else {}
        ranges = [pushed.cut(each) for each in planned(starts, ends, earliest, latest, options.loss)]
        if pushed.since_ms is None:
            return ranges
        since = catalog.at(pushed.since, partitions)
        return [each._replace(start=max(each.start, since[each.partition])) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._reading.read(partition.value)


class FilteringBatchReader(BatchReader):
    """Spark asks whatever defines `pushFilters` to have its conf for that: only who wants it gets this one."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        self._pushed, rest = Pushed.of(filters)
        return rest
