"""`headrace produce`: lines, JSON lines, CSV or records from a file or a pipe, with progress for those who watch.

Records go in columns where many are at hand, and one by one where they come slowly: columns cost a tenth of what
records cost, and a record that a person types must not wait for a second one. So the reader of the input calls
`LineSender.send_all` when it is about to wait for more, and what was read by then goes. `Deliveries` counts which
records are written, which are not, and why: futures that are done are taken out now and then, so memory is bounded by
what is on its way, and the first failure ends a long input soon, not at its end. One thread uses it.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, NoReturn, TypeAlias

import click

from headrace.cli.commands import Command, examples
from headrace.cli.line_formats import (
    InputRecord,
    LineError,
    csv_rows,
    json_lines,
    lines_of,
    plain_lines,
    printed_records,
)
from headrace.cli.options import TOPIC, Where, WholeNumber, broker_options, naming_remedy
from headrace.cli.output import after_interrupt, check_stdin, notify
from headrace.cli.progress import EndSignal, ProgressCounts, ended_by_signals, progress, summary
from headrace.client.clock import epoch_ms
from headrace.core.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.client.producer.producer import Producer


_LOOK_AT_LEAST = 1_000
_LOOK_EVERY_S = 0.5
_COLUMNS_FROM = 50
"""The number of records from which columns are used. Fewer are sent one by one: the producer's linger makes batches of
them, columns would be a batch each. So are records with headers, which columns do not have."""
_DELIVERY_TIMEOUT_MS = 30_000
"""The time limit that suits a person: long enough for a broker's restart."""
_INTERRUPTED_PATIENCE_S = 5.0
"""The time that Ctrl-C leaves the brokers for what was sent already."""
_Reader: TypeAlias = Callable[[Iterable[bytes]], Iterator[InputRecord]]
_FORMATS_BY_SUFFIX = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv"}


class _Sent(NamedTuple):
    future: Any
    records: int


@dataclass(slots=True)
class Deliveries:
    clock: Callable[[], float] = time.monotonic
    sent: int = 0
    written: int = 0
    failed: int = 0
    """The number of records of calls that failed: of a call for many, some may be written."""
    failures: int = 0
    """The number of calls that failed."""
    first_error: Any = None
    """The HeadraceError of the first record that was found failed, by the order of sending."""
    _waiting: list[_Sent] = field(default_factory=list)
    _look_at: int = _LOOK_AT_LEAST
    _look_s: float = 0.0

    @property
    def waiting(self) -> int:
        """Return the number of records that were sent, and were neither written nor failed at the last check."""
        return sum(sent.records for sent in self._waiting)

    def add(self, future: Any, records: int) -> None:
        """Add a future of so many records. Raises the first failure of what was added so far."""
        self._waiting.append(_Sent(future, records))
        self.sent += records
        if len(self._waiting) >= self._look_at or self.clock() >= self._look_s:
            self.count_done()
            if self.first_error is not None:
                raise self.first_error

    def count_done(self) -> None:
        """Count the futures that are done."""
        waiting = []
        for sent in self._waiting:
            if not sent.future.done():
                waiting.append(sent)
            elif (error := sent.future.exception()) is None:
                self.written += sent.records
            else:
                self.failed += sent.records
                self.failures += 1
                self.first_error = self.first_error or error
        self._waiting = waiting
        # Twice as many must have come before all are checked again, or a slow broker would make this quadratic.
        self._look_at = max(_LOOK_AT_LEAST, 2 * len(waiting))
        self._look_s = self.clock() + _LOOK_EVERY_S

    def wait(self, limit_s: float) -> None:
        """Wait until nothing is on its way any more or the time is over."""
        deadline = self.clock() + limit_s
        for sent in self._waiting:
            try:
                sent.future.exception(timeout=max(0.0, deadline - self.clock()))
            except TimeoutError:
                break
        self.count_done()


_RECORDS_AT_ONCE_MAX, _BYTES_AT_ONCE_MAX = 10_000, 1 << 20
"""The limits of one call: enough to be worth it, few enough to spread over partitions."""


@dataclass(slots=True)
class LineSender:
    producer: "Producer"
    topic: str
    partition: int | None
    deliveries: Deliveries
    counts: ProgressCounts
    keyed: int = 0
    """The number of records with a key."""
    _read: list[InputRecord] = field(default_factory=list)
    _read_bytes: int = 0

    def add(self, record: InputRecord) -> None:
        """Add a record. Raises the first failure of what was sent before."""
        self._read.append(record)
        self._read_bytes += len(record.value or b"")
        if len(self._read) >= _RECORDS_AT_ONCE_MAX or self._read_bytes >= _BYTES_AT_ONCE_MAX:
            self.send_all()

    def send_all(self) -> None:
        """Send all that was added and not sent yet. Raises what `add` raises."""
        read, size_bytes = self._read, self._read_bytes
        self._read, self._read_bytes = [], 0
        keys = [record.key for record in read]
        keyed = len(keys) - keys.count(None)
        by_columns = len(read) >= _COLUMNS_FROM and not any(record.headers for record in read)
        if not by_columns or not self._send_columns(read, keys if keyed else None):
            for record in read:
                self._send(record)
        self.keyed += keyed
        self.counts.records += len(read)
        self.counts.bytes += size_bytes

    def _send_columns(self, records: list[InputRecord], keys: list[bytes | None] | None) -> bool:
        """Send columns. Return False where one of them is too large: nothing is sent then."""
        values, times = [record.value for record in records], [record.timestamp_ms for record in records]
        try:
            future = self.producer.send_batch(
                self.topic,
                values=values,
                keys=keys,
                partition=self.partition,
                timestamps_ms=None if None in times else times,
            )
        except HeadraceError as error:
            if error.status != 413:
                raise
            return False
        self.deliveries.add(future, len(records))
        return True

    def _send(self, record: InputRecord) -> None:
        try:
            future = self.producer.send(
                self.topic,
                record.value,
                record.key,
                headers=record.headers,
                partition=self.partition,
                timestamp_ms=record.timestamp_ms,
            )
        except HeadraceError as error:
            if error.status != 413:
                raise
            raise type(error)(f"line {record.line}: {error.message}", **error.details) from error
        self.deliveries.add(future, 1)


@dataclass(frozen=True, slots=True)
class _Options:
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
    _produce(where, _Options(**options))


def _produce(where: Where, options: _Options) -> None:
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
            # Whatever the input is, and even where it is empty, a topic that is not there is reported at once.
            with naming_remedy(where, found.namespace, options.topic):
                producer.send_batch(options.topic, values=[]).result()
            sending = LineSender(producer, options.topic, options.partition, deliveries, ProgressCounts())
            _send_all(sending, options, read)
        except KeyboardInterrupt:
            _leave(deliveries, options.topic, ending)
    if not options.quiet:
        notify(summary("produced", deliveries.written, f"to {options.topic}", time.monotonic() - started))
    if options.key_field is not None and deliveries.sent and not sending.keyed:
        notify(f"headrace: no record has a field {options.key_field!r}: all keys are null", fg="yellow")


def _reader(options: _Options) -> _Reader:
    """Return the reader that makes records of lines."""
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


def _send_all(sending: LineSender, options: _Options, read: _Reader) -> None:
    """Send all. Raises the first failure, with the outcome of the others."""
    interactive = options.file.isatty()
    if interactive:
        notify("one record a line; Ctrl-D ends", dim=True)
    try:
        with progress(sending.counts, lambda: _share(options.file), shown=not (interactive or options.quiet)):
            for record in read(lines_of(options.file, before_waiting=sending.send_all)):
                sending.add(record)
            sending.send_all()
            sending.producer.flush()
            sending.deliveries.count_done()
    except LineError as error:
        sending.send_all()
        raise _with_count(error, sending.deliveries, next_line=error.line) from error
    except HeadraceError as error:
        raise _with_count(error, sending.deliveries) from error
    if sending.deliveries.first_error is not None:
        raise _with_count(sending.deliveries.first_error, sending.deliveries)


def _with_count(error: HeadraceError, deliveries: Deliveries, next_line: int | None = None) -> HeadraceError:
    """Return `error` with the number of written records: a person who repeats the command needs it.

    `next_line` is where to continue, if all that was sent is written.
    """
    deliveries.wait(_DELIVERY_TIMEOUT_MS / 1000)
    if not deliveries.sent:
        return error
    # In a call for many records that failed, some may be written all the same.
    least = "at least " if deliveries.failed > deliveries.failures else ""
    go_on = ""
    if next_line is not None and deliveries.written == deliveries.sent:
        go_on = f"; all before line {next_line} are: go on from there, with the header where there is one"
    return type(error)(
        f"{error.message} (records written: {least}{deliveries.written:,} of {deliveries.sent:,} sent{go_on})"
    )


def _share(file: BinaryIO) -> float | None:
    """Return which part of the input is read; None for a pipe."""
    size = os.fstat(file.fileno()).st_size
    return os.lseek(file.fileno(), 0, os.SEEK_CUR) / size if size and file.seekable() else None


def _leave(deliveries: Deliveries, topic: str, ending: EndSignal) -> NoReturn:
    """End at once: a producer that is closed would wait for its brokers, however long they take."""
    after_interrupt()
    if deliveries.sent:
        try:
            _wait_a_little(deliveries, ending)
        except KeyboardInterrupt:
            after_interrupt()
            deliveries.count_done()
        notify(f"headrace: {ending.word}: {_outcome(deliveries, topic)}", fg="yellow")
    os._exit(ending.exit_code)


def _wait_a_little(deliveries: Deliveries, ending: EndSignal) -> None:
    deliveries.count_done()
    if deliveries.waiting:
        notify(f"headrace: {ending.word}: waiting for {deliveries.waiting:,} records; Ctrl-C again ends it", dim=True)
        deliveries.wait(_INTERRUPTED_PATIENCE_S)


def _outcome(deliveries: Deliveries, topic: str) -> str:
    unknown, written = deliveries.waiting + deliveries.failed, deliveries.written
    rest = f"; {unknown:,} more were sent and not acknowledged: they may be written or not" if unknown else ""
    return f"{'1 record is' if written == 1 else f'{written:,} records are'} written to {topic}{rest}"
