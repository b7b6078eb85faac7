"""The tasks: each reads one range, and gives it to Spark as Arrow batches of the query's schema.

A `Reading` is made on the driver, and pickled for every task: it holds plain values alone.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headrace.spark.columns import JsonValues, Maker, Rows, gathered, maker_of
from headrace.spark.errors import LossPolicy
from headrace.spark.offsets import OffsetRange
from headrace.spark.options import Connection
from headrace.spark.range_reader import reader_of
from headrace.spark.schema import RowShape


@dataclass(frozen=True, slots=True)
class Reading:
    connection: Connection
    shape: RowShape
    schema: StructType
    loss: LossPolicy

    def read(self, wanted: OffsetRange | None) -> Iterator[Any]:
        """Yield Arrow batches; Spark has a task without a range where there is nothing at all."""
        if wanted is None:
            return
        make = self._made()
        with reader_of(self.connection) as reader, closing(reader.batches(wanted, self.loss)) as batches:
            for rows in gathered(wanted.partition, batches):
                yield make(rows)

    def checked(self) -> Self:
        """Check on the driver. Raises LocalError for what no task could do."""
        self._made()
        return self

    def _made(self) -> Maker:
        """Return the function that makes an Arrow batch of rows."""
        schema = to_arrow_schema(self.schema, timezone="UTC")
        columns = list(zip(self.shape.columns, schema, strict=True))
        typed = [kind for column, kind in columns if column.is_typed]
        plain = [None if column.is_typed else maker_of(column.name, kind.type) for column, kind in columns]
        values = JsonValues(typed, is_permissive=self.shape.is_permissive) if typed else None
        return partial(_batch, schema, plain, values)


def _batch(schema: Any, plain: list[Maker | None], values: JsonValues | None, rows: Rows) -> Any:
    typed = iter(()) if values is None else iter(values.columns(rows))
    return pa.RecordBatch.from_arrays([next(typed) if make is None else make(rows) for make in plain], schema=schema)
