"""The conversion of batches to the columns that Spark is given, without a step per row. Called in Spark's Python
workers.

Keys and values stay where the network has put them; offsets, times and headers are made anew a column at a time; what
is the same in every record (topic, partition) is made once, and sliced. Small batches are joined until they are worth
one of Spark's; large ones are cut.

JSON values become typed columns a whole Arrow batch at a time. All values become one document that Arrow parses in C++:
a line `{"v":<value>}` for each, so that a value with newlines is still one row, a tombstone is `{"v":null}`, and an
empty value, or two in one, is an error instead of a shifted row. Where that fails, halves are tried, until the very
record is found.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from headrace.core.errors import LocalError
from headrace.core.records.arrays import bytes_array, long_numbers, number_array
from headrace.core.records.columns import DecodedBatch
from headrace.spark.errors import BadValueError
from headrace.spark.offsets import SourcePartition

SPARK_ROWS_MAX = 1 << 16
"""The rows of one Arrow batch that Spark is given: its JVM holds a few of them for each task ..."""
SPARK_ROWS_GATHERED = 1 << 15
"""The rows up to which small batches of a partition are joined, since each costs Spark the same, ..."""
SPARK_BYTES_GATHERED = 4 << 20
"""... or the bytes."""


CREATE_TIME, LOG_APPEND_TIME = 0, 1
_US_PER_MS = 1000
_MS_MAX = (2**63 - 1) // _US_PER_MS
"""The last time that Spark has, which stands for later ones: the year 294247."""
_FIELD: Final = "v"
_UNTAKEN = (pa.types.is_binary, pa.types.is_map, pa.types.is_duration, pa.types.is_interval, pa.types.is_time)
_SHOWN_BYTES = 80


class Rows:
    """Some records in a row, of one partition and one type of time."""

    def __init__(self, partition: SourcePartition, batches: Sequence[DecodedBatch]) -> None:
        self.partition = partition
        self._batches = batches
        self.count = sum(len(batch.offsets) for batch in batches)

    def raw(self, index: int) -> Any:
        """Return the column of RECORD_SCHEMA; of one batch it is not copied."""
        pieces = [batch.records.column(index) for batch in self._batches]
        return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)

    @property
    def offsets(self) -> Any:
        pieces = [batch.offsets for batch in self._batches]
        return number_array(pieces[0] if len(pieces) == 1 else np.concatenate(pieces))

    @property
    def timestamps(self) -> Any:
        times = long_numbers(self.raw(2))
        if any(batch.header.max_timestamp_ms > _MS_MAX for batch in self._batches):
            times = np.minimum(times, _MS_MAX)
        micros = pa.py_buffer(np.multiply(times, _US_PER_MS))
        return pa.Array.from_buffers(pa.timestamp("us", "UTC"), self.count, [None, micros], null_count=0)

    def headers(self, kind: Any) -> Any:
        """Return the same bytes under the names that Spark has for them."""
        stored = self.raw(3)
        items = stored.values
        pairs = pa.StructArray.from_arrays([items.field(0), items.field(1)], fields=list(kind.value_type))
        return pa.ListArray.from_arrays(stored.offsets, pairs, type=kind)

    @property
    def time_type(self) -> int:
        return LOG_APPEND_TIME if self._batches[0].header.has_append_time else CREATE_TIME

    def constant(self, value: str | int) -> Any:
        return _repeated(value)[: self.count]


@lru_cache(maxsize=64)
def _repeated(value: str | int) -> Any:
    """Repeat a value without `pa.repeat`, which would load pandas, 0.2 s of a worker's first task."""
    if isinstance(value, int):
        return number_array(np.full(SPARK_ROWS_MAX, value, np.int32))
    return bytes_array([value.encode()] * SPARK_ROWS_MAX, pa.string())


Maker = Callable[[Rows], Any]


def maker_of(name: str, kind: Any) -> Maker:
    """Return the function that makes the column of that name, of this Arrow type."""
    makers: dict[str, Maker] = {
        "key": lambda rows: rows.raw(0),
        "value": lambda rows: rows.raw(1),
        "topic": lambda rows: rows.constant(rows.partition.topic),
        "partition": lambda rows: rows.constant(rows.partition.number),
        "offset": lambda rows: rows.offsets,
        "timestamp": lambda rows: rows.timestamps,
        "timestampType": lambda rows: rows.constant(rows.time_type),
        "headers": lambda rows: rows.headers(kind),
    }
    return makers[name]


def gathered(partition: SourcePartition, batches: Iterable[DecodedBatch]) -> Iterator[Rows]:
    """Yield rows as they come, joined and cut to what Spark takes at a time."""
    waiting: list[DecodedBatch] = []
    rows = size = 0
    for batch in _cut(batches):
        count = len(batch.offsets)
        if waiting and (rows + count > SPARK_ROWS_MAX or _differ(waiting[0], batch)):
            yield Rows(partition, waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(batch)
        rows += count
        size += batch.header.batch_bytes
        if rows >= SPARK_ROWS_GATHERED or size >= SPARK_BYTES_GATHERED:
            yield Rows(partition, waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield Rows(partition, waiting)


def _differ(one: DecodedBatch, other: DecodedBatch) -> bool:
    return one.header.has_append_time != other.header.has_append_time


def _cut(batches: Iterable[DecodedBatch]) -> Iterator[DecodedBatch]:
    for batch in batches:
        for first in range(0, len(batch.offsets), SPARK_ROWS_MAX):
            offsets = batch.offsets[first : first + SPARK_ROWS_MAX]
            yield DecodedBatch(batch.header, batch.records.slice(first, len(offsets)), offsets)


_BEFORE, _AFTER, _BETWEEN = b'{"v":', b"}\n", b""


class JsonValues:
    def __init__(self, fields: Sequence[Any], *, is_permissive: bool) -> None:
        """Take fields of Spark's Arrow schema. Raises LocalError for a type that no JSON is read as."""
        for field in fields:
            _check_type(field.name, field.type)
        self._fields, self._is_permissive = fields, is_permissive
        self._kind = pa.struct([pa.field(field.name, _parsed_as(field.type)) for field in fields])
        # This is not made when the module is loaded: Arrow asks pandas about scalars, and that takes 0.2 s to load.
        self._around = [pa.scalar(part, pa.binary()) for part in (_BEFORE, _AFTER, _BETWEEN)]
        self._options = pa.json.ParseOptions(
            explicit_schema=pa.schema([(_FIELD, self._kind)]), unexpected_field_behavior="ignore"
        )

    def columns(self, rows: Rows) -> list[Any]:
        """Return one column for each field. Raises BadValueError that names the record."""
        found = self._decoded(rows.raw(1), rows, 0)
        whole = found[0] if len(found) == 1 else pa.concat_arrays(found)
        return [column.cast(field.type) for column, field in zip(whole.flatten(), self._fields, strict=True)]

    def _decoded(self, values: Any, rows: Rows, first: int) -> list[Any]:
        """Return the values as arrays of structs; `first` is the row of the first value."""
        try:
            return [self._parsed(values)]
        except (pa.ArrowException, ValueError) as error:
            if len(values) == 1:
                return [self._bad(values[0].as_py(), rows, first, error)]
        half = len(values) // 2
        return [*self._decoded(values[:half], rows, first), *self._decoded(values[half:], rows, first + half)]

    def _parsed(self, values: Any) -> Any:
        """Parse the values. Raises ArrowException or ValueError where any value is not such JSON."""
        before, after, between = self._around
        lines = pc.binary_join_element_wise(
            before, values, after, between, null_handling="replace", null_replacement=b"null"
        )
        document = lines.buffers()[2]
        read = pa.json.ReadOptions(use_threads=False, block_size=len(document) + 1)
        parsed = pa.json.read_json(pa.BufferReader(document), read_options=read, parse_options=self._options)
        found = parsed.column(_FIELD).combine_chunks()
        if len(found) != len(values):
            raise ValueError("more than one JSON value in one record")
        found.validate(full=True)
        for column, field in zip(found.flatten(), self._fields, strict=True):
            if column.type != field.type:
                column.cast(field.type)
        return found

    def _bad(self, value: bytes, rows: Rows, row: int, error: Exception) -> Any:
        if self._is_permissive:
            return pa.nulls(1, self._kind)
        offset = rows.offsets[row].as_py()
        shown = value[:_SHOWN_BYTES] + (b"..." if len(value) > _SHOWN_BYTES else b"")
        raise BadValueError(
            f"the value at offset {offset} of {rows.partition} is no JSON object of valueSchema: {shown!r}:"
            f" {_why(error)}; set mode=PERMISSIVE to have nulls instead, or read value as it is"
        ) from error


def _parsed_as(kind: Any) -> Any:
    """Return the type to parse as: Arrow reads no dates from JSON, but casts them from text."""
    return pa.string() if pa.types.is_date(kind) else kind


def _check_type(name: str, kind: Any, depth: int = 0) -> None:
    within = [kind.value_type] if pa.types.is_list(kind) else []
    if pa.types.is_struct(kind):
        within = [kind.field(index).type for index in range(kind.num_fields)]
    for each in within:
        _check_type(name, each, depth + 1)
    if any(is_kind(kind) for is_kind in _UNTAKEN) or (depth and pa.types.is_date(kind)):
        raise LocalError(
            f"valueSchema: JSON is not read as {kind} (column {name}): take it as STRING, and convert that"
        )


def _why(error: Exception) -> str:
    """Return the reason without the number of a row, which users do not see."""
    return str(error).removeprefix("JSON parse error: ").removesuffix(" in row 0").rstrip(".")
