"""The formats in which `headrace consume -o` prints records: JSON lines, bare values or rows of a table. Pure.

A form takes a batch's columns and gives its lines, one for each record, without the ends: a hundred bytes of output are
worth no object of their own. Imported in functions, because it loads numpy and pyarrow.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import repeat
from typing import Any, Final, TypeAlias

from headrace.client.record import TopicPartition
from headrace.core.records.arrays import header_rows
from headrace.core.records.json_records import to_json
from headrace.core.types import Offset, RecordContent, RecordHeaders

_TABLE_COLUMNS: Final = (("PARTITION", 9), ("OFFSET", 12), ("TIMESTAMP", 24), ("KEY", 20))
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
"""Characters that would break the row, or control the terminal."""
_quoted: Callable[[str], str] = json.JSONEncoder(ensure_ascii=False).encode


@dataclass(frozen=True, slots=True)
class RecordRows:
    """Records of one partition, column by column."""

    topic: str
    partition: int
    offsets: list[int]
    timestamps_ms: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[RecordHeaders]

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @classmethod
    def of(cls, batch: Any) -> "RecordRows":
        """Return the rows of a pyarrow.RecordBatch as `Consumer.batches()` gives it."""
        column = batch.column
        return cls(
            column("topic")[0].as_py(),
            column("partition")[0].as_py(),
            column("offset").to_pylist(),
            column("timestamp_ms").to_pylist(),
            column("key").to_pylist(),
            column("value").to_pylist(),
            header_rows(column("headers")),
        )


Form: TypeAlias = Callable[[RecordRows], Iterator[bytes]]


def values(rows: RecordRows) -> Iterator[bytes]:
    """Yield the bare values; a record without a value is an empty line."""
    return (value or b"" for value in rows.values)


def json_lines(rows: RecordRows, *, with_topic: bool = False) -> Iterator[bytes]:
    """Yield each record in the broker's JSON form, with its partition, and its topic where there are several."""
    return map(
        _json_line,
        repeat(f'"topic": {_quoted(rows.topic)}, ' if with_topic else ""),
        repeat(rows.partition),
        rows.offsets,
        rows.timestamps_ms,
        rows.keys,
        rows.values,
        rows.headers,
    )


def table(rows: RecordRows, width: int | None, topic_width: int = 0) -> Iterator[bytes]:
    """Yield rows under `table_title`, cut at `width` characters; None leaves values whole."""
    topic = f"{rows.topic:{topic_width}} " if topic_width else ""
    for offset, time, key, value in zip(rows.offsets, rows.timestamps_ms, rows.keys, rows.values, strict=True):
        cells = (str(rows.partition), str(offset), _time(time), _text(key))
        place = " ".join(cell.ljust(size) for cell, (_, size) in zip(cells, _TABLE_COLUMNS, strict=True))
        yield f"{topic}{place} {_text(value)}"[:width].encode()


def table_title(topic_width: int = 0) -> bytes:
    """Return the title; `topic_width` is that of a first column for the topic, where there are several."""
    topic = f"{'TOPIC':{topic_width}} " if topic_width else ""
    return (topic + " ".join(title.ljust(size) for title, size in _TABLE_COLUMNS) + " VALUE").encode()


def _json_line(  # noqa: PLR0913 - a record's columns: gathering them first would double the price of a line
    topic: str,
    partition: int,
    offset: int,
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: RecordHeaders,
) -> bytes:
    """Return one line; `topic` is the whole field that begins the line, or nothing."""
    try:
        if not headers:  # This is text without headers, the usual record, at a tenth of the cost of the general case.
            shown = (
                "null" if key is None else _quoted(key.decode()),
                "null" if value is None else _quoted(value.decode()),
            )
            return (
                f'{{{topic}"partition": {partition}, "offset": {offset}, "timestamp": {timestamp_ms},'
                f' "key": {shown[0]}, "value": {shown[1]}, "headers": []}}'
            ).encode()
    except UnicodeDecodeError:
        pass
    document = {"partition": partition, **to_json(RecordContent(key, value, timestamp_ms, headers), Offset(offset))}
    return f"{{{topic}{json.dumps(document, ensure_ascii=False)[1:]}".encode()


def _time(timestamp_ms: int) -> str:
    try:
        time = datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):  # The time is past the year 9999.
        return f"{timestamp_ms} ms"
    return time.replace("+00:00", "Z")


def _text(content: bytes | None) -> str:
    if content is None:
        return "-"
    return _CONTROL.sub(_escaped, content.decode(errors="backslashreplace"))


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()
