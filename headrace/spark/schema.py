"""The columns of the source, as options choose them: Kafka's, typed ones in place of `value`, or some of these. Pure.

Spark parses the DDL: here it is only cut into its columns. Names are compared as Spark does, whatever their case.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.core.errors import LocalError
from headrace.spark.options import choice, flag, text

SCHEMA_OPTIONS = ("includeHeaders", "columns", "valueFormat", "valueSchema", "mode")
_TYPES = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "timestampType": "INT",
}
_HEADERS = {"headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>"}
SOURCE_COLUMNS = (*_TYPES, *_HEADERS)
"""The columns of a read, at most, where values are not typed."""
_JSON, _BINARY = "json", "binary"
_FAIL, _PERMISSIVE = "FAILFAST", "PERMISSIVE"
_PAIRS = {"(": ")", "<": ">"}


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    kind: str
    """The type as in DDL."""
    is_typed: bool = False
    """True for a field of the JSON in `value`."""

    @property
    def ddl(self) -> str:
        return f"`{self.name.replace('`', '``')}` {self.kind}"


@dataclass(frozen=True, slots=True)
class RowShape:
    """The columns that a reader makes of records."""

    columns: tuple[Column, ...]
    is_permissive: bool = False
    """True where a value that is no such JSON gives nulls instead of an error."""

    @property
    def ddl(self) -> str:
        return ", ".join(column.ddl for column in self.columns)


def shape_of(options: Mapping[str, str]) -> RowShape:
    mode = choice(options, "mode", _FAIL, _PERMISSIVE)
    typed = _typed_columns(options)
    if not typed and text(options, "mode") is not None:
        raise LocalError("mode is given without valueFormat=json: leave it out")
    kinds = _TYPES | (_HEADERS if flag(options, "includeHeaders", default=False) else {})
    all_columns: list[Column] = []
    for name, kind in kinds.items():
        all_columns += typed if typed and name == "value" else [Column(name, kind)]
    wanted = text(options, "columns")
    chosen = _checked(all_columns) if wanted is None else _chosen(wanted, all_columns)
    return RowShape(tuple(chosen), mode == _PERMISSIVE)


def _typed_columns(options: Mapping[str, str]) -> list[Column]:
    schema = text(options, "valueSchema")
    if choice(options, "valueFormat", _BINARY, _JSON) == _BINARY:
        if schema is not None:
            raise LocalError("valueSchema is given without valueFormat: write valueFormat=json too")
        return []
    if schema is None:
        raise LocalError("valueFormat is json and there is no valueSchema: write one, for example 'carrier STRING'")
    columns = [_typed_column(part) for part in _parts(schema)]
    names = [column.name.lower() for column in columns]
    for column in columns:
        if names.count(column.name.lower()) > 1:
            raise LocalError(f"valueSchema has {column.name!r} more than once: leave out all but one")
    return columns


def _typed_column(part: str) -> Column:
    name, kind = _name_and_kind(part)
    if not name or not kind:
        raise LocalError(f"valueSchema has {part!r}: write a name and a type, for example 'delay INT'")
    if kind.upper().endswith("NOT NULL"):
        raise LocalError(f"valueSchema has {part!r}: leave out NOT NULL, a tombstone has no fields at all")
    return Column(name, kind, is_typed=True)


def _name_and_kind(part: str) -> tuple[str, str]:
    if not part.startswith("`"):
        name, _, kind = part.replace(":", " ", 1).partition(" ") if _has_colon(part) else part.partition(" ")
        return name, kind.strip()
    end = part.replace("``", "  ").find("`", 1)
    return part[1:end].replace("``", "`"), part[end + 1 :].strip().removeprefix(":").strip()


def _has_colon(part: str) -> bool:
    """Return whether it is like `delay: INT`, with a colon that is not of a type within."""
    return ":" in part.partition("<")[0]


def _parts(ddl: str) -> list[str]:
    """Return the parts between commas that are not within a type or a quoted name."""
    parts, closers, quoted = [""], [], False
    for character in ddl:
        if character == "`":
            quoted = not quoted
        elif not quoted and character in _PAIRS:
            closers.append(_PAIRS[character])
        elif not quoted and closers and character == closers[-1]:
            closers.pop()
        if character == "," and not closers and not quoted:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def _checked(columns: list[Column]) -> list[Column]:
    seen: set[str] = set()
    for column in columns:
        if column.name.lower() in seen:
            raise LocalError(
                f"valueSchema has {column.name!r}, and so has the record itself: name the columns that you want with"
                f" columns=, where {column.name!r} is the one of valueSchema"
            )
        seen.add(column.name.lower())
    return columns


def _chosen(wanted: str, columns: list[Column]) -> list[Column]:
    """Return the columns in the order that the user gives; of two with one name the typed one."""
    by_name = {column.name.lower(): column for column in sorted(columns, key=lambda column: column.is_typed)}
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    for name in names:
        if name.lower() not in by_name:
            there = ", ".join(column.name for column in columns)
            raise LocalError(f"columns has {name!r}: there are {there}{_hint(name)}")
    return [by_name[name] for name in dict.fromkeys(map(str.lower, names))]


def _hint(name: str) -> str:
    return " (set includeHeaders=true for headers)" if name.lower() == "headers" else ""
