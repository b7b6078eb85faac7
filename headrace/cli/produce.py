"""`headrace produce`: lines, JSON lines or CSV from a file or a pipe, with progress for those who watch."""

import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from headrace.cli.line_formats import InputRecord, csv_rows, json_lines, plain_lines
from headrace.cli.options import namespace_option, server_option
from headrace.cli.output import reading
from headrace.core.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.client.producer import Producer

_DELIVERY_TIMEOUT_MS = 30_000
"""A person's patience: long enough for a broker's restart."""
_CHECK_EVERY = 1_000
"""Records between two looks at whether the brokers still take them."""
_FORMATS_BY_SUFFIX = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv"}


@dataclass(frozen=True, slots=True)
class Options:
    topic: str
    file: BinaryIO
    key_field: str | None
    format_: str | None
    partition: int | None
    acks: Any
    namespace: str
    server: str | None


@click.command()
@click.argument("topic")
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--key-field", metavar="F", help="The field of each JSON object, or the CSV column, that is the key.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["lines", "jsonl", "csv"]),
    help="What a line is.  [default: by the file's name (.jsonl, .ndjson, .csv), else lines]",
)
@click.option("--partition", type=click.IntRange(min=0), metavar="P", help="Write to this partition only.")
@click.option(
    "--acks", type=click.Choice(["all", "1", "0"]), default="all", show_default=True, help="Whom to wait for."
)
@namespace_option
@server_option
def produce(**options: Any) -> None:
    """Write the lines of FILE, or of stdin, to TOPIC: one record each.

    \b
    printf 'tea\\ncoffee\\n' | headrace produce orders
    headrace produce orders orders.jsonl --key-field customer
    headrace produce flights flights.csv --key-field tailnum
    """
    _produce(Options(**options))


def _produce(options: Options) -> None:
    from headrace.client.producer import Producer

    started = time.monotonic()
    producer = Producer(options.server, options.namespace, acks=options.acks, delivery_timeout_ms=_DELIVERY_TIMEOUT_MS)
    with producer, reading(options.file) as (lines, show):
        sent, keyed = _send_all(producer, options, _records(lines, options), show)
    seconds = time.monotonic() - started
    rate = f", {sent / seconds:,.0f} records/s" if seconds > 1 else ""
    records = "1 record" if sent == 1 else f"{sent:,} records"
    click.echo(f"produced {records} to {options.topic} in {seconds:.1f} s{rate}", err=True)
    if options.key_field is not None and sent and not keyed:
        click.secho(f"headrace: no record has a field {options.key_field!r}: all keys are null", fg="yellow", err=True)


def _records(lines: Iterable[bytes], options: Options) -> Iterator[InputRecord]:
    format_ = options.format_ or _FORMATS_BY_SUFFIX.get(Path(str(options.file.name)).suffix, "lines")
    match format_:
        case "jsonl":
            return json_lines(lines, options.key_field)
        case "csv":
            return csv_rows(lines, options.key_field)
        case _:
            if options.key_field is not None:
                raise click.UsageError("--key-field needs --format jsonl or csv: plain lines have no fields")
            return plain_lines(lines)


def _send_all(producer: "Producer", options: Options, records: Iterator[InputRecord], show: Any) -> tuple[int, int]:
    """How many records were written, and how many of them with a key."""
    sent = keyed = 0
    samples: deque[Any] = deque()
    try:
        for record in records:
            future = _send(producer, options, record)
            sent += 1
            keyed += record.key is not None
            if sent % _CHECK_EVERY == 0:
                samples.append(future)
                _raise_if_failed(samples)
                show(sent)
        producer.flush()
    except HeadraceError as error:
        if sent and error.details.get("line"):
            producer.flush()
            raise type(error)(f"{error.message} (records before it that are written: {sent:,})") from error
        raise
    show(sent)
    return sent, keyed


def _send(producer: "Producer", options: Options, record: InputRecord) -> Any:
    try:
        return producer.send(options.topic, record.value, record.key, partition=options.partition)
    except HeadraceError as error:
        if error.status == 413:
            raise type(error)(
                f"line {record.line}: {error.message}", **{**error.details, "line": record.line}
            ) from error
        raise


def _raise_if_failed(samples: deque[Any]) -> None:
    """So that a long input ends at the first failure, and not at its end."""
    while samples and samples[0].done():
        samples.popleft().result()
