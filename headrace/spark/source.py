"""`format("headrace")`: the class that Spark finds by the module `pyspark_headrace`, on the driver.

Spark makes one for each read, asks for its schema, and then for a reader. Options are checked when the schema is asked
for, so that `load()` itself reports mistakes.
"""

import os
from dataclasses import replace

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from headrace.core.errors import LocalError
from headrace.spark.batch_reader import BatchReader, FilteringBatchReader
from headrace.spark.errors import LossPolicy
from headrace.spark.options import Connection, check_names
from headrace.spark.read_options import READ_OPTIONS, BatchOptions, StreamOptions
from headrace.spark.schema import shape_of
from headrace.spark.stream_reader import StreamReader
from headrace.spark.tasks import Reading
from headrace.spark.writing import BatchWriter, StreamingWriter, WriteOptions, check_schema


class HeadraceSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "headrace"

    def schema(self) -> str:
        check_names(self.options, READ_OPTIONS, "the options of reading")
        return shape_of(self.options).ddl

    def reader(self, schema: StructType) -> DataSourceReader:
        options = BatchOptions.of(self.options)
        reading = self._reading(schema, options.connection, options.loss)
        return FilteringBatchReader(options, reading) if options.pushes_filters else BatchReader(options, reading)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        options = StreamOptions.of(self.options)
        return StreamReader(options, self._reading(schema, options.connection, options.loss))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        if overwrite:
            raise LocalError('a topic is only ever appended to: write with mode("append")')
        return BatchWriter(self._write_options(schema))

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        if overwrite:
            raise LocalError('a topic is only ever appended to: write with outputMode("append") or ("update")')
        options = self._write_options(schema)
        if options.transaction is not None:
            raise LocalError("txnAppId and txnVersion are options of df.write: a query is known by its checkpoint")
        return StreamingWriter(options)

    def _write_options(self, schema: StructType) -> WriteOptions:
        options = WriteOptions.of(self.options)
        check_schema(schema, options.topic)
        return replace(options, connection=options.connection.resolved(os.environ))

    def _reading(self, schema: StructType, connection: Connection, loss: LossPolicy) -> Reading:
        shape = shape_of(self.options)
        names = [column.name for column in shape.columns]
        if schema.fieldNames() != names:
            raise LocalError(
                f"the schema that was given has {', '.join(schema.fieldNames())}, and the source {', '.join(names)}:"
                " leave out schema(), and choose with columns= or valueSchema="
            )
        return Reading(connection.resolved(os.environ), shape, schema, loss).checked()
