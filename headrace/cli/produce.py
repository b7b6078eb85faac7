"""`headrace produce`: lines, JSON lines, CSV or records from a file or a pipe, with progress for those who watch."""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, TypeAlias

import click

from headrace.cli.deliveries import Deliveries
from headrace.cli.ending import Ending, ended_by_signals
from headrace.cli.examples import Command, examples
from headrace.cli.input_lines import lines_of
from headrace.cli.line_formats import InputRecord, LineError, csv_rows, json_lines, plain_lines, printed_records
from headrace.cli.options import TOPIC, Where, WholeNumber, broker_options, naming_remedy
from headrace.cli.output import after_interrupt, check_stdin, tell
from headrace.cli.progress import Tally, progress, summary
from headrace.cli.sending import Sending
from headrace.client.clock import epoch_ms
from headrace.core.errors import HeadraceError

_DELIVERY_TIMEOUT_MS = 30_000
"""A person's patience: long enough for a broker's restart."""
_INTERRUPTED_PATIENCE_S = 5.0
"""What Ctrl-C leaves the brokers for what was sent already."""
_Reader: TypeAlias = Callable[[Iterable[bytes]], Iterator[InputRecord]]
_FORMATS_BY_SUFFIX = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv"}


@dataclass(frozen=True, slots=True)
class Options:
    topic: str
    file: BinaryIO
    key_field: str | None
    allow_missing_key: bool
    format_: str | None
    partition: int | None
    acks: Any
    quiet: bool


@examples(
    ("A record for each line of a pipe.", "printf 'tea\\ncoffee\\n' | headrace produce orders"),
    (
        "JSON objects, one a line, each keyed by one of its fields.",
        "headrace produce orders orders.jsonl --key-field id",
    ),
    ("Rows of a CSV file, as JSON objects.", "headrace produce flights flights.csv --key-field tailnum"),
    (
        "Copy a topic: keys, headers, times and tombstones, too.",
        "headrace consume orders -o json | headrace produce flights --format records",
    ),
    ("Faster, and less safe: only the partition's leader is asked.", "headrace produce orders orders.jsonl --acks 1"),
)
@click.command(cls=Command)
@click.argument("topic", type=TOPIC)
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--key-field", metavar="F", help="The field of each JSON object, or the CSV column, that is the key.")
@click.option(
    "--allow-missing-key",
    is_flag=True,
    help="JSON objects without the field of --key-field get no key; without this, the first of them ends the command.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["lines", "jsonl", "csv", "records"]),
    help="What a line is; `records` are those of `headrace consume -o json`.  [default: by the file's name (.jsonl,"
    " .ndjson, .csv), else lines]",
)
@click.option("--partition", type=WholeNumber(min=0), metavar="P", help="Write to this partition only.")
@click.option(
    "--acks",
    type=click.Choice(["all", "1", "0"]),
    default="all",
    show_default=True,
    help="Wait until records are as safe as the topic promises (all), the leader has them (1), or not at all (0).",
)
@click.option("-q", "--quiet", is_flag=True, help="Neither progress nor the line at the end.")
@broker_options
def produce(where: Where, **options: Any) -> None:
    """Write the lines of FILE, or of stdin, to TOPIC: one record each.

    With --format records a line such as {"key": "a", "value": null, "headers": {"source": "me"}} gives more than the
    value: null is a tombstone, keyBase64 and valueBase64 are bytes; partition and offset say nothing.

    Records without a key take turns among the partitions; a compacted topic refuses them: name the field that is the
    key, or bring keys with --format records. What cannot be written within 30 s ends the command with 1.
    Ctrl-C, SIGTERM and SIGHUP wait 5 s for what was sent, and it says how much is written; a second one does not wait.
    """
    _produce(where, Options(**options))


def _produce(where: Where, options: Options) -> None:
    from headrace.client.producer.producer import Producer

    read = _reader(options)
    check_stdin(options.file)
    found = where.find()
    started, deliveries = time.monotonic(), Deliveries()
    with (
        ended_by_signals() as ending,
        Producer(
            found.server, found.namespace, acks=options.acks, delivery_timeout_ms=_DELIVERY_TIMEOUT_MS
        ) as producer,
    ):
        try:
            # Whatever the input is, and even where it is empty: a topic that is not there is said at once.
            with naming_remedy(where, found.namespace, options.topic):
                producer.send_batch(options.topic, values=[]).result()
            sending = Sending(producer, options.topic, options.partition, deliveries, Tally())
            _send_all(sending, options, read)
        except KeyboardInterrupt:
            _leave(deliveries, options.topic, ending)
    if not options.quiet:
        tell(summary("produced", deliveries.written, f"to {options.topic}", time.monotonic() - started))
    if options.key_field is not None and deliveries.sent and not sending.keyed:
        tell(f"headrace: no record has a field {options.key_field!r}: all keys are null", fg="yellow")


def _reader(options: Options) -> _Reader:
    """What makes records of lines."""
    if options.allow_missing_key and options.key_field is None:
        raise click.UsageError("--allow-missing-key is about --key-field: name the field, or leave it out.")
    format_ = options.format_ or _FORMATS_BY_SUFFIX.get(Path(str(options.file.name)).suffix, "lines")
    if format_ in ("lines", "records"):
        if options.key_field is not None:
            why = "plain lines have no fields" if format_ == "lines" else "records bring their keys"
            raise click.UsageError(f"--key-field needs --format jsonl or csv: {why}.")
        return plain_lines if format_ == "lines" else partial(printed_records, clock_ms=epoch_ms)
    if format_ == "csv":
        return partial(csv_rows, key_field=options.key_field)
    return partial(json_lines, key_field=options.key_field, may_lack_key=options.allow_missing_key)


def _send_all(sending: Sending, options: Options, read: _Reader) -> None:
    """Raises the first failure, with what came of the others."""
    interactive = options.file.isatty()
    if interactive:
        tell("one record a line; Ctrl-D ends", dim=True)
    try:
        with progress(sending.tally, lambda: _share(options.file), shown=not (interactive or options.quiet)):
            for record in read(lines_of(options.file, before_waiting=sending.send_all)):
                sending.add(record)
            sending.send_all()
            sending.producer.flush()
            sending.deliveries.look()
    except LineError as error:
        sending.send_all()
        raise _with_count(error, sending.deliveries, next_line=error.line) from error
    except HeadraceError as error:
        raise _with_count(error, sending.deliveries) from error
    if sending.deliveries.first_error is not None:
        raise _with_count(sending.deliveries.first_error, sending.deliveries)


def _with_count(error: HeadraceError, deliveries: Deliveries, next_line: int | None = None) -> HeadraceError:
    """`error`, and how many records are written: those who repeat the command need to know.

    `next_line` is where to go on, if all that was sent is written.
    """
    deliveries.wait(_DELIVERY_TIMEOUT_MS / 1000)
    if not deliveries.sent:
        return error
    # Of a call for many records that failed, some may be written all the same.
    least = "at least " if deliveries.failed > deliveries.failures else ""
    go_on = ""
    if next_line is not None and deliveries.written == deliveries.sent:
        go_on = f"; all before line {next_line} are: go on from there, with the header where there is one"
    return type(error)(
        f"{error.message} (records written: {least}{deliveries.written:,} of {deliveries.sent:,} sent{go_on})"
    )


def _share(file: BinaryIO) -> float | None:
    """What part of the input is read; None for a pipe."""
    size = os.fstat(file.fileno()).st_size
    return os.lseek(file.fileno(), 0, os.SEEK_CUR) / size if size and file.seekable() else None


def _leave(deliveries: Deliveries, topic: str, ending: Ending) -> NoReturn:
    """End here and now: a producer that is let go would wait for its brokers, however long they take."""
    after_interrupt()
    if deliveries.sent:
        try:
            _wait_a_little(deliveries, ending)
        except KeyboardInterrupt:
            after_interrupt()
            deliveries.look()
        tell(f"headrace: {ending.word}: {_outcome(deliveries, topic)}", fg="yellow")
    os._exit(ending.exit_code)


def _wait_a_little(deliveries: Deliveries, ending: Ending) -> None:
    deliveries.look()
    if deliveries.waiting:
        tell(f"headrace: {ending.word}: waiting for {deliveries.waiting:,} records; Ctrl-C again ends it", dim=True)
        deliveries.wait(_INTERRUPTED_PATIENCE_S)


def _outcome(deliveries: Deliveries, topic: str) -> str:
    unknown, written = deliveries.waiting + deliveries.failed, deliveries.written
    rest = f"; {unknown:,} more were sent and not acknowledged: they may be written or not" if unknown else ""
    return f"{'1 record is' if written == 1 else f'{written:,} records are'} written to {topic}{rest}"
