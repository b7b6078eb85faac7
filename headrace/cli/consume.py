"""`headrace consume`: records of topics as JSON lines, bare values or a table.

As a member of a group it commits what it has printed, and nothing else: a batch counts as read once its last line is
flushed, and in a pipe once its reader has taken it (`stdout_pipe`). However it ends, it commits and leaves; only a
sudden end (`kill -9`, a lost network), or a reader that goes away, leaves records that are printed and not committed;
the next member prints them again.
"""

import os
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.commands import Command, examples
from headrace.cli.options import (
    GROUP,
    TOPIC,
    Where,
    WholeNumber,
    broker_options,
    naming_remedy,
    output_option,
    parse_start,
)
from headrace.cli.output import check_stdout, notify
from headrace.cli.progress import ProgressCounts, ended_by_signals, progress, summary, write_whole
from headrace.cli.stdout_pipe import Pipe, pipe_of_stdout
from headrace.core.errors import InvalidRequestError, LocalError, UnreadableBatchError
from headrace.core.groups.topic_patterns import topic_pattern
from headrace.core.limits import INSTANCE_ID_LENGTH_MAX

if TYPE_CHECKING:
    from headrace.cli.record_formats import Form, RecordRows
    from headrace.cli.servers import Found
    from headrace.client.consumer.consumer import Consumer


_PATTERN_TOPIC_WIDTH = 20
"""The width of the topic's column where the topics are not known yet; longer names move their row."""
_TIMEOUT_MS = 30_000
"""The time limit that suits a person: long enough for a broker's restart."""
_COMMIT_INTERVAL_MS = 1_000
_INTERRUPTED_PATIENCE_MS = 1_000
"""The time that Ctrl-C, SIGTERM and SIGHUP leave a reader for what is in the pipe already."""


@dataclass(frozen=True, slots=True)
class _Options:
    topics: tuple[str, ...]
    start: str | int | datetime
    partition: int | None
    max_records: int | None
    follow: bool
    group: str | None
    pattern: str | None
    instance_id: str | None
    skip_unreadable: bool
    output: str
    quiet: bool

    @property
    def which(self) -> str:
        """Return what is read, for use in sentences."""
        pattern = () if self.pattern is None else (f"topics like {self.pattern}",)
        return ", ".join((*self.topics, *pattern))

    @property
    def topic_width(self) -> int:
        """Return the width of a column that names the topic; 0 where there is one topic only."""
        if self.pattern is not None:
            return max(_PATTERN_TOPIC_WIDTH, *map(len, self.topics), 0)
        return max(map(len, self.topics)) if len(self.topics) > 1 else 0

    def check(self) -> None:
        """Raise click.UsageError where the options do not fit together."""
        if not self.topics and self.pattern is None:
            raise click.UsageError("Missing argument 'TOPIC...': name topics, or --pattern with --group.")
        if self.group is None:
            self._check_without_group()
        elif self.partition is not None:
            raise click.UsageError("--partition and --group exclude each other: who reads which is the group's to say.")
        if self.partition is not None and len(self.topics) > 1:
            raise click.UsageError("--partition is of one topic: read one at a time, or leave it out.")

    def _check_without_group(self) -> None:
        for option, value in (("--pattern", self.pattern), ("--instance-id", self.instance_id)):
            if value is not None:
                raise click.UsageError(f"{option} {value} is for members of a group: add --group, or leave it out.")


def parse_pattern(text: str) -> str:
    """Check a pattern. Raises click.BadParameter with the place of the mistake in the pattern."""
    if not text:
        raise click.BadParameter("it is empty: give for example 'orders-.*'.")
    try:
        topic_pattern(text)
    except InvalidRequestError as error:
        raise click.BadParameter(f"{error.message}.") from None
    return text


def parse_instance_id(text: str) -> str:
    """Check an instance id. Raises click.BadParameter."""
    if not 1 <= len(text) <= INSTANCE_ID_LENGTH_MAX:
        raise click.BadParameter(
            f"it has {len(text)} characters: give 1 to {INSTANCE_ID_LENGTH_MAX}, for example the name of the Pod."
        )
    return text


@examples(
    ("The values of all records there are.", "headrace consume orders -o value"),
    ("The last hour.", "headrace consume orders --from '1h ago'"),
    ("Ten records of one partition, as a table.", "headrace consume orders --partition 3 -m 10 -o table"),
    ("Since a time, into a file.", "headrace consume orders --from 2026-11-20T12:00:00Z > records.jsonl"),
    ("What comes next, until Ctrl-C.", "headrace consume orders --from latest --follow -o value"),
    ("What the group has not read yet.", "headrace consume orders --group billing"),
    ("As a member that stays; run several to share the work.", "headrace consume orders --group billing --follow"),
    ("All topics of that kind, new ones too.", "headrace consume --pattern 'orders.*' --group audit"),
    (
        "As one that keeps its partitions over a restart.",
        "headrace consume orders --group shipping --instance-id shipping-0 --follow",
    ),
)
@click.command(cls=Command)
@click.argument("topics", type=TOPIC, nargs=-1, metavar="[TOPIC]...")
@click.option(
    "--from",
    "start",
    callback=lambda _context, _option, text: parse_start(text, datetime.now(UTC)),
    default="earliest",
    show_default=True,
    metavar="earliest|latest|OFFSET|TIME",
    help="Where to begin, in every partition; with --group, where the group has no offset yet. A TIME is '30m ago' (ms,"
    " s, m, h, d) or 2026-11-20T12:00:00Z.",
)
@click.option("--partition", type=WholeNumber(min=0), metavar="P", help="Only this partition.")
@click.option("-m", "--max-records", type=WholeNumber(min=1), metavar="N", help="Stop after so many records.")
@click.option("-f", "--follow", is_flag=True, help="Wait for new records; without it, stop at the end as it is now.")
@click.option(
    "--group",
    type=GROUP,
    metavar="G",
    help="As a member of this consumer group, which comes to be with its first one: share partitions with the other"
    " members, go on where the group is, commit what is printed.",
)
@click.option(
    "--pattern",
    callback=lambda _context, _option, text: None if text is None else parse_pattern(text),
    metavar="REGEX",
    help="With --group: all topics whose whole name matches, beside those that are named; new ones are found too.",
)
@click.option(
    "--instance-id",
    callback=lambda _context, _option, text: None if text is None else parse_instance_id(text),
    metavar="NAME",
    help="With --group: as a static member, for example by its Pod's name. One that ends keeps its partitions, and who"
    " comes with the same name within the session takes them up again.",
)
@click.option(
    "--skip-unreadable",
    is_flag=True,
    help="Leave out records that were written so that nobody can decode them, and say so; without it, the first of them"
    " ends the command.",
)
@output_option("json", "value", "table")
@click.option("-q", "--quiet", is_flag=True, help="No progress on the terminal while records go into a file.")
@broker_options
def consume(where: Where, **options: Any) -> None:
    """Print the records of topics, by offset within each partition.

    Partitions take turns; with several topics each record says of which it is. What cannot be read for 30 s ends the
    command with 1, Ctrl-C with 130, SIGTERM with 143, SIGHUP with 129.

    With --group, what is printed is committed every second and at the end, be it the end of the records, -m, Ctrl-C,
    SIGTERM or SIGHUP; then the member leaves, and others take over at once (with --instance-id: when it has not
    come back within the session). Without --follow it reads up to the ends that its partitions have when it gets them;
    those of a member that was not heard of since this one came (it may have been killed) it waits for.

    In a pipe, what its reader has taken counts as printed, and the command waits for that at the end. What a reader
    that ends first (`| head`, a loop that fails) did with what it took last, nobody knows: then nothing more is
    committed, and what was not committed before comes again. -m N reads N records and no more.
    """
    _consume(where, _Options(**options))


def _consume(where: Where, options: _Options) -> None:
    options.check()
    check_stdout()
    found = where.find()
    watched = sys.stderr.isatty() and not options.quiet
    shown = watched and _goes_into_a_file()
    started, counts = time.monotonic(), ProgressCounts()
    with (
        ended_by_signals(),
        _naming_way_on(),
        _telling_what_comes_again(options) as pipe,
        _consumer(where, found, options) as consumer,
    ):
        share = _share(consumer, options, counts) if shown else lambda: None
        with progress(counts, share, shown=shown):
            if options.group is None:
                _print(consumer, options, counts)
            else:
                _print_for_group(consumer, options, counts, pipe)
    if shown:
        notify(summary("consumed", counts.records, f"from {options.which}", time.monotonic() - started))
    elif watched and not counts.records:
        notify("nothing from there on; --follow waits for what comes", dim=True)


@contextmanager
def _telling_what_comes_again(options: _Options) -> Iterator[Pipe | None]:
    """Yield the pipe that a member prints into; after the member has left, print which records are not committed."""
    pipe = None if options.group is None else pipe_of_stdout()
    try:
        yield pipe
    finally:
        count = 0 if pipe is None else pipe.comes_again()
        if count:
            notify(
                f"headrace: whatever reads this has not taken all: {'a record' if count == 1 else f'{count:,} records'}"
                " printed last are not committed, and come again (-m N reads N and no more)",
                fg="yellow",
            )


@contextmanager
def _naming_way_on() -> Iterator[None]:
    """Name the command that continues after records that cannot be decoded."""
    try:
        yield
    except UnreadableBatchError as error:
        place = f"--partition {error.details.get('partition')} --from {error.details.get('nextOffset')}"
        raise UnreadableBatchError(
            f"{error.details.get('topic')}/{error.details.get('partition')}: {_reason(error)}; leave such records out"
            f" with --skip-unreadable, or read on with {place}",
            **error.details,
        ) from error


def _reason(error: UnreadableBatchError) -> str:
    """Return the reason without the advice for programs."""
    return error.__cause__.message if isinstance(error.__cause__, UnreadableBatchError) else error.message


def _goes_into_a_file() -> bool:
    """Return whether stdout is a file, neither a screen nor a pipe: the reader of a pipe often shows something on the
    same screen itself."""
    mode = os.fstat(sys.stdout.fileno()).st_mode
    return not (sys.stdout.isatty() or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))


def _consumer(where: Where, found: "Found", options: _Options) -> "Consumer":
    from headrace.client.consumer.consumer import Consumer

    with naming_remedy(where, found.namespace, *options.topics):
        if options.group is not None:
            _check_topics(found, options)
        return Consumer(
            *options.topics,
            group=options.group,
            pattern=options.pattern,
            instance_id=options.instance_id,
            start=options.start,
            on_unreadable="skip" if options.skip_unreadable else "raise",
            partitions=None if options.partition is None else [options.partition],
            server=found.server,
            namespace=found.namespace,
            timeout_ms=_TIMEOUT_MS,
            auto_commit_interval_ms=_COMMIT_INTERVAL_MS,
        )


def _check_topics(found: "Found", options: _Options) -> None:
    """Check that the topics exist: a member may wait for a topic, but a person who types one wants to know. Raises
    UnknownTopicError."""
    from headrace.client.transport.brokers import Brokers

    brokers = Brokers(found.server, found.namespace, timeout_ms=_TIMEOUT_MS, request_timeout_ms=_TIMEOUT_MS)
    try:
        for topic in options.topics:
            brokers.run(brokers.layout(topic))
    finally:
        brokers.close()


def _print(consumer: "Consumer", options: _Options, counts: ProgressCounts) -> None:
    from headrace.cli.record_formats import RecordRows

    out, form = sys.stdout.buffer, _form(options)
    for batch in _limited(consumer.batches(follow=options.follow), options.max_records):
        content = b"".join(line + b"\n" for line in form(RecordRows.of(batch)))
        out.write(content)
        counts.records += batch.num_rows
        counts.bytes += len(content)
        if options.follow:
            out.flush()
    out.flush()


def _print_for_group(consumer: "Consumer", options: _Options, counts: ProgressCounts, pipe: Pipe | None) -> None:
    from headrace.cli.record_formats import RecordRows

    form = _form(options)
    sys.stdout.buffer.flush()
    if pipe is not None:
        consumer.commit_below(pipe.first_untaken)
    with _printing(consumer, pipe) as printed:
        for batch in _limited(consumer.batches(follow=options.follow), options.max_records):
            rows = RecordRows.of(batch)
            counts.bytes += printed.write(rows, [line + b"\n" for line in form(rows)])
            counts.records += batch.num_rows


@contextmanager
def _printing(consumer: "Consumer", pipe: Pipe | None) -> Iterator["_Printed"]:
    """Yield what is printed; however the block ends, it is committed afterwards."""
    printed = _Printed(pipe)
    try:
        yield printed
        if pipe is not None:
            pipe.wait_until_taken()
    except KeyboardInterrupt:
        if pipe is not None:
            pipe.wait_until_taken(_INTERRUPTED_PATIENCE_MS)
        raise
    finally:
        printed.count_as_read(consumer)


class _Printed:
    """The records that a member has printed."""

    def __init__(self, pipe: Pipe | None) -> None:
        self._pipe = pipe
        self._last: RecordRows | None = None

    def write(self, rows: "RecordRows", lines: list[bytes]) -> int:
        """Write lines and return how many bytes they have."""
        if self._pipe is not None:
            self._pipe.add(rows.place, rows.offsets, lines)
        content = b"".join(lines)
        write_whole(self._pipe or sys.stdout.buffer, content, partial(self._add, rows))
        return len(content)

    def _add(self, rows: "RecordRows") -> None:
        self._last = rows

    def count_as_read(self, consumer: "Consumer") -> None:
        """Count all up to the last row as read: no member comes back for more, and what was cut off from it was not
        printed."""
        rows = self._last
        if rows is not None:
            with suppress(LocalError):  # The partition went to another member meanwhile.
                consumer.seek(rows.place, rows.offsets[-1] + 1)


def _limited(batches: Iterator[Any], max_records: int | None) -> Iterator[Any]:
    """Yield batches of so many records in all; the one that would be too much is cut, and no other is waited for."""
    left = max_records
    for batch in batches:
        yield batch if left is None else batch.slice(0, left)
        if left is not None:
            left -= batch.num_rows
            if left <= 0:
                return


def _form(options: _Options) -> "Form":
    from headrace.cli import record_formats

    topic_width = options.topic_width
    if options.output == "value":
        return record_formats.values
    if options.output == "json":
        return partial(record_formats.json_lines, with_topic=bool(topic_width))
    sys.stdout.buffer.write(record_formats.table_title(topic_width) + b"\n")
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    return partial(record_formats.table, width=width, topic_width=topic_width)


def _share(consumer: "Consumer", options: _Options, counts: ProgressCounts) -> Callable[[], float | None]:
    """Return a function that computes which part of all records has come; None where they never end, or the end is not
    known."""
    total = options.max_records
    if not options.follow and options.group is None:
        there = sum(max(0, end - consumer.position(place)) for place, end in consumer.end_offsets().items())
        total = there if total is None else min(total, there)
    return lambda: counts.records / total if total else None
