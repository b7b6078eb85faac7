"""A batch query: what it reads is fixed on the driver, once, and read by tasks."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from headrace.spark.catalog import Catalog
from headrace.spark.offsets import Offsets
from headrace.spark.options import Connection
from headrace.spark.ranges import OffsetRange, split
from headrace.spark.read_options import BatchOptions
from headrace.spark.tasks import RangePartition, Reading


class BatchReader(DataSourceReader):
    def __init__(self, options: BatchOptions, reading: Reading) -> None:
        self._options, self._reading = options, reading

    def partitions(self) -> list[InputPartition]:
        catalog = Catalog(self._reading.connection)
        try:
            ranges = self._ranges(catalog)
        finally:
            catalog.close()
        options = self._options
        cut = split(ranges, min_partitions=options.min_partitions, max_records=options.max_records)
        return [RangePartition(each) for each in cut]

    def _ranges(self, catalog: Catalog) -> list[OffsetRange]:
        options = self._options
        partitions = catalog.partitions(options.subscription)
        ...

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._reading.read(partition)
