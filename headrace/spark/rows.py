"""Rows that Spark writes, as records: which columns there must be, and the same columns as a batch has them. Pure.

value (text or binary), key, headers (array<struct<key, value>>), topic, partition      as Spark's Kafka sink has them

Names are compared as Spark does, whatever their case. Two that differ in nothing else, as `spark.sql.caseSensitive`
allows, are refused.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType

from headrace.core.errors import LocalError
from headrace.core.records.columns import record_columns
from headrace.spark.schema import SOURCE_COLUMNS

_BYTES = (BinaryType, StringType)
_WRITTEN = ("key", "value", "headers", "topic", "partition")
_KNOWN = frozenset(name.lower() for name in (*_WRITTEN, *SOURCE_COLUMNS))


class Portion(NamedTuple):
    """Rows that go to one topic."""

    topic: str
    records: Any
    """A pyarrow.RecordBatch of RECORD_SCHEMA."""
    partition: int | None
    """None: as the producer chooses."""


def check_schema(schema: StructType, topic: str | None) -> None:
    """On the driver. Raises LocalError that names the column, and what to select instead."""
    kinds: dict[str, DataType] = {}
    for field in schema.fields:
        name = field.name
        if name.lower() in kinds:
            same = [repr(other) for other in schema.names if other.lower() == name.lower()]
            raise LocalError(f"columns {' and '.join(same)} have the same name: select one of them")
        kinds[name.lower()] = field.dataType
        if name.lower() not in _KNOWN:
            raise LocalError(
                f"column {name!r} is none of {', '.join(_WRITTEN)}: select these alone, for example"
                ' df.selectExpr("to_json(struct(*)) AS value")'
            )
    if "value" not in kinds:
        raise LocalError(
            'there is no column value: select one, for example df.selectExpr("to_json(struct(*)) AS value")'
        )
    if topic is None and "topic" not in kinds:
        raise LocalError("nothing says where to: give option topic, or select a column topic")
    for name, wanted in (("key", _BYTES), ("value", _BYTES), ("topic", (StringType,)), ("partition", (IntegerType,))):
        if name in kinds and not isinstance(kinds[name], wanted):
            raise _wrong(name, kinds[name], " or ".join(kind.typeName() for kind in wanted))
    if "headers" in kinds and not _are_headers(kinds["headers"]):
        raise _wrong("headers", kinds["headers"], "array<struct<key: string, value: binary>>")


def portions(batch: Any, topic: str | None, now_ms: int) -> Iterator[Portion]:
    """The rows of one of Spark's Arrow batches, those of one topic and partition in their order.

    Raises LocalError for a row without a topic, or with a header without a key.
    """
    columns = {name.lower(): batch.column(at) for at, name in enumerate(batch.schema.names)}
    keys, headers = columns.get("key"), columns.get("headers")
    records = record_columns(
        _binary(columns["value"]),
        None if keys is None or keys.null_count == len(keys) else _binary(keys),
        timestamps_ms=now_ms,
        headers=None if headers is None else _headers(headers),
    )
    for name, rows in _by_topic(columns.get("topic"), topic, len(batch)):
        some = records if rows is None else records.filter(rows)
        partitions = columns.get("partition")
        if partitions is None or partitions.null_count == len(partitions):
            yield Portion(name, some, None)
        else:
            yield from _by_partition(name, some, partitions if rows is None else partitions.filter(rows))


def _by_topic(column: Any, topic: str | None, count: int) -> Iterator[tuple[str, Any]]:
    """Each topic with a mask of its rows; None: all of them."""
    if topic is not None:
        yield topic, None
        return
    if column.null_count:
        row = pc.index(pc.is_null(column), True).as_py()
        raise LocalError(f"topic is null in row {row} of {count}: give option topic, or a topic in every row")
    names = pc.unique(column).to_pylist()
    for name in names:
        yield name, None if len(names) == 1 else pc.equal(column, name)


def _by_partition(topic: str, records: Any, partitions: Any) -> Iterator[Portion]:
    for number in pc.unique(partitions).to_pylist():
        mask = pc.is_null(partitions) if number is None else pc.fill_null(pc.equal(partitions, number), False)  # noqa: FBT003
        yield Portion(topic, records.filter(mask), number)


def _binary(column: Any) -> Any:
    return column.cast(pa.binary())


def _headers(column: Any) -> Any:
    """`array<struct<key, value>>` with nulls as it likes, as HEADERS_TYPE."""
    entries = column.flatten()
    if not len(entries):
        return None
    names, values = entries.field(0), entries.field(1)
    if names.null_count or entries.null_count:
        raise LocalError("headers has an entry without a key: give each header one")
    items = pa.StructArray.from_arrays([names, _binary(values)], names=["name", "value"])
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    ends = pa.array([0, *lengths.cumsum().tolist()], pa.int32())
    return pa.ListArray.from_arrays(ends, items)


def _are_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = kind.elementType.fields
    return len(fields) == 2 and isinstance(fields[0].dataType, StringType) and isinstance(fields[1].dataType, _BYTES)


def _wrong(name: str, kind: DataType, wanted: str) -> LocalError:
    return LocalError(f"column {name} is {kind.simpleString()}: it must be {wanted}; cast it")
