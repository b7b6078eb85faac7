"""JSON values as typed columns, a whole Arrow batch at a time.

All values become one document that Arrow parses in C++: a line `{"v":<value>}` for each, so that a value with newlines
is still one row, a tombstone is `{"v":null}`, and an empty value, or two in one, is an error instead of a shifted row.
Where that fails, halves are tried, until the very record is found. Called in Spark's Python workers.
"""

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from headrace.core.errors import LocalError
from headrace.spark.columns import Rows
from headrace.spark.errors import BadValueError

_FIELD: Final = "v"
_BEFORE, _AFTER, _BETWEEN = b'{"v":', b"}\n", b""
_UNTAKEN = (pa.types.is_binary, pa.types.is_map, pa.types.is_duration, pa.types.is_interval, pa.types.is_time)
_SHOWN_BYTES = 80


class JsonValues:
    def __init__(self, fields: Sequence[Any], *, is_permissive: bool) -> None:
        """Fields of Spark's Arrow schema. Raises LocalError for a type that no JSON is read as."""
        for field in fields:
            _check_type(field.name, field.type)
        self._fields, self._is_permissive = fields, is_permissive
        self._kind = pa.struct([pa.field(field.name, _parsed_as(field.type)) for field in fields])
        # Not when this module is loaded: Arrow asks pandas about scalars, and that takes 0.2 s to load.
        self._around = [pa.scalar(part, pa.binary()) for part in (_BEFORE, _AFTER, _BETWEEN)]
        self._options = pa.json.ParseOptions(
            explicit_schema=pa.schema([(_FIELD, self._kind)]), unexpected_field_behavior="ignore"
        )

    def columns(self, rows: Rows) -> list[Any]:
        """One for each field. Raises BadValueError that names the record."""
        found = self._decoded(rows.raw(1), rows, 0)
        whole = found[0] if len(found) == 1 else pa.concat_arrays(found)
        return [column.cast(field.type) for column, field in zip(whole.flatten(), self._fields, strict=True)]

    def _decoded(self, values: Any, rows: Rows, first: int) -> list[Any]:
        """As arrays of structs; `first` is the row of the first value."""
        try:
            return [self._parsed(values)]
        except (pa.ArrowException, ValueError) as error:
            if len(values) == 1:
                return [self._bad(values[0].as_py(), rows, first, error)]
        half = len(values) // 2
        return [*self._decoded(values[:half], rows, first), *self._decoded(values[half:], rows, first + half)]

    def _parsed(self, values: Any) -> Any:
        """Raises ArrowException or ValueError where any value is not such JSON."""
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
    """Arrow reads no dates from JSON, but casts them from text."""
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
    """Without the number of a row that nobody sees."""
    return str(error).removeprefix("JSON parse error: ").removesuffix(" in row 0").rstrip(".")
