"""`headrace consume`: a topic's records as JSON lines, bare values or a table."""

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import click

from headrace.cli.options import namespace_option, output_option, server_option

if TYPE_CHECKING:
    from headrace.client.record import Record

_TIMEOUT_MS = 30_000
"""A person's patience: long enough for a broker's restart."""
_TABLE_COLUMNS: Final = (("PARTITION", 9), ("OFFSET", 12), ("TIMESTAMP", 24), ("KEY", 20))


@dataclass(frozen=True, slots=True)
class Options:
    topic: str
    start: str | int | datetime
    partition: int | None
    max_records: int | None
    follow: bool
    group: str | None
    output: str
    namespace: str
    server: str | None


def _parse_start(_context: click.Context, _option: click.Parameter, text: str) -> str | int | datetime:
    """`earliest`, `latest`, an offset, or a time: what a whole number means must not depend on its size."""
    if text in ("earliest", "latest"):
        return text
    if text.isascii() and text.isdecimal():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is neither earliest, latest, an offset such as 1200, nor a time such as"
            " 2026-11-20T12:00:00Z (without a zone: UTC)"
        ) from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


@click.command()
@click.argument("topic")
@click.option(
    "--from",
    "start",
    callback=_parse_start,
    default="earliest",
    show_default=True,
    metavar="earliest|latest|OFFSET|TIMESTAMP",
    help="Where to begin, in every partition.",
)
@click.option("--partition", type=click.IntRange(min=0), metavar="P", help="Only this partition.")
@click.option("-m", "--max-records", type=click.IntRange(min=1), metavar="N", help="Stop after so many records.")
@click.option("--follow", is_flag=True, help="Wait for new records; without it, stop at the end as it is now.")
@click.option("--group", metavar="G", help="Consumer groups are not available yet.")
@output_option("json", "value", "table")
@namespace_option
@server_option
def consume(**options: Any) -> None:
    """Print the records of TOPIC, by offset within each partition.

    \b
    headrace consume orders -o value
    headrace consume orders --from latest --follow
    headrace consume orders --from 2026-11-20T12:00:00Z --partition 3 -m 10 -o table
    """
    _consume(Options(**options))


def _consume(options: Options) -> None:
    from headrace.client.consumer import Consumer

    consumer = Consumer(
        options.topic,
        group=options.group,
        start=options.start,
        partitions=None if options.partition is None else [options.partition],
        server=options.server,
        namespace=options.namespace,
        timeout_ms=_TIMEOUT_MS,
    )
    with consumer:
        records = consumer.records(follow=options.follow)
        _print(islice(records, options.max_records), _FORMATS[options.output](), flush=options.follow)


def _print(records: "Iterator[Record]", form: "Callable[[Record], bytes]", *, flush: bool) -> None:
    out = sys.stdout.buffer
    for record in records:
        out.write(form(record))
        if flush:
            out.flush()
    out.flush()


def _value_form() -> "Callable[[Record], bytes]":
    return lambda record: (record.value or b"") + b"\n"


def _json_form() -> "Callable[[Record], bytes]":
    from headrace.core.records.json_form import to_json
    from headrace.core.records.record import Record as Content
    from headrace.core.types import Offset

    def form(record: "Record") -> bytes:
        content = Content(record.key, record.value, record.timestamp_ms, record.headers)
        document = {"partition": record.partition, **to_json(content, Offset(record.offset))}
        return json.dumps(document, ensure_ascii=False).encode() + b"\n"

    return form


def _table_form() -> "Callable[[Record], bytes]":
    """A line a record, cut at the terminal's width; a pipe gets values whole."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    titles = " ".join(title.ljust(size) for title, size in _TABLE_COLUMNS)
    sys.stdout.buffer.write(f"{titles} VALUE\n".encode())

    def form(record: "Record") -> bytes:
        time = datetime.fromtimestamp(record.timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
        cells = (str(record.partition), str(record.offset), time.replace("+00:00", "Z"), _text(record.key))
        place = " ".join(cell.ljust(size) for cell, (_, size) in zip(cells, _TABLE_COLUMNS, strict=True))
        return f"{place} {_text(record.value)}"[:width].encode() + b"\n"

    return form


def _text(content: bytes | None) -> str:
    if content is None:
        return "-"
    return content.decode(errors="backslashreplace").replace("\n", "\\n")


_FORMATS: Final = {"json": _json_form, "value": _value_form, "table": _table_form}
