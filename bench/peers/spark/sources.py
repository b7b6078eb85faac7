"""Sources of Spark's that have no broker behind them: what is left of a query is what Spark itself costs.

`bench-memory` yields one Arrow batch again and again, of the columns that `headrace` has and of as many rows as it
gathers. `bench-nothing` is a stream that has something new at each trigger, and no rows in it.
"""

from collections.abc import Iterator, Mapping
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from headrace.spark.columns import SPARK_ROWS_GATHERED

_ALL_COLUMNS = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset LONG, timestamp TIMESTAMP, timestampType INT"
)
_US = 1_000_000_000_000_000


class MemorySource(DataSource):
    """Options: `records`, `partitions`, `payloads`, and `columns=value` for that column alone."""

    @classmethod
    def name(cls) -> str:
        return "bench-memory"

    def schema(self) -> str:
        return "value BINARY" if self.options.get("columns") == "value" else _ALL_COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        return _MemoryReader(self.options, schema)


class _MemoryReader(DataSourceReader):
    """Spark pickles it for each task: it holds plain values alone."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._partitions, self._payloads = int(options["partitions"]), options["payloads"]
        self._records, self._schema = int(options["records"]) // self._partitions, schema

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        values = Path(self._payloads).read_bytes().splitlines()
        batch = memory_batch(values, min(SPARK_ROWS_GATHERED, self._records), partition.value, self._schema)
        for first in range(0, self._records, SPARK_ROWS_GATHERED):
            yield batch.slice(0, min(SPARK_ROWS_GATHERED, self._records - first))


def memory_batch(values: list[bytes], rows: int, partition: int, schema: StructType) -> Any:
    """As `headrace` makes it: no keys, one topic, one partition."""
    columns = {
        "key": pa.nulls(rows, pa.binary()),
        "value": pa.array(list(islice(cycle(values), rows)), pa.binary()),
        "topic": pa.array(["records"] * rows, pa.string()),
        "partition": pa.array([partition] * rows, pa.int32()),
        "offset": pa.array(range(rows), pa.int64()),
        "timestamp": pa.array([_US] * rows, pa.timestamp("us", "UTC")),
        "timestampType": pa.array([0] * rows, pa.int32()),
    }
    wanted = to_arrow_schema(schema, timezone="UTC")
    return pa.RecordBatch.from_arrays([columns[name] for name in wanted.names], schema=wanted)


class NothingSource(DataSource):
    """Options: `partitions`, and `triggers`, after which it has no more."""

    @classmethod
    def name(cls) -> str:
        return "bench-nothing"

    def schema(self) -> str:
        return _ALL_COLUMNS

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return _NothingReader(int(self.options["partitions"]), int(self.options["triggers"]))


class _NothingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, partitions: int, triggers: int) -> None:
        self._partitions, self._triggers = partitions, triggers

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's names, here and below
        return {"trigger": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(1)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """All that it will ever have is there."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        return {"trigger": min(start["trigger"] + 1, self._triggers)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return iter(())
