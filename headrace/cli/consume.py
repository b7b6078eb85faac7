"""`headrace consume`: a topic's records as JSON lines, bare values or a table."""

import os
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.examples import Command, examples
from headrace.cli.options import TOPIC, Where, broker_options, naming_remedy, output_option
from headrace.cli.output import tell
from headrace.cli.progress import Tally, progress, summary
from headrace.cli.starts import parse_start
from headrace.core.errors import LocalError

if TYPE_CHECKING:
    from headrace.cli.forms import Form
    from headrace.cli.servers import Found
    from headrace.client.consumer import Consumer

_TIMEOUT_MS = 30_000
"""A person's patience: long enough for a broker's restart."""


@dataclass(frozen=True, slots=True)
class Options:
    topic: str
    start: str | int | datetime
    partition: int | None
    max_records: int | None
    follow: bool
    group: str | None
    output: str
    quiet: bool


@examples(
    ("The values of all records there are.", "headrace consume orders -o value"),
    ("The last hour.", "headrace consume orders --from '1h ago'"),
    ("Ten records of one partition, as a table.", "headrace consume orders --partition 3 -m 10 -o table"),
    ("Since a time, into a file.", "headrace consume orders --from 2026-11-20T12:00:00Z > records.jsonl"),
    ("What comes next, until Ctrl-C.", "headrace consume orders --from latest --follow -o value"),
)
@click.command(cls=Command)
@click.argument("topic", type=TOPIC)
@click.option(
    "--from",
    "start",
    callback=lambda _context, _option, text: parse_start(text, datetime.now(UTC)),
    default="earliest",
    show_default=True,
    metavar="earliest|latest|OFFSET|TIME",
    help="Where to begin, in every partition. A TIME is '30m ago' (ms, s, m, h, d) or 2026-11-20T12:00:00Z.",
)
@click.option("--partition", type=click.IntRange(min=0), metavar="P", help="Only this partition.")
@click.option("-m", "--max-records", type=click.IntRange(min=1), metavar="N", help="Stop after so many records.")
@click.option("-f", "--follow", is_flag=True, help="Wait for new records; without it, stop at the end as it is now.")
@click.option("--group", metavar="G", help="Consumer groups are not available yet.")
@output_option("json", "value", "table")
@click.option("-q", "--quiet", is_flag=True, help="No progress on the terminal while records go into a file.")
@broker_options
def consume(where: Where, **options: Any) -> None:
    """Print the records of TOPIC, by offset within each partition.

    Partitions take turns. What cannot be read for 30 s ends the command with 1, Ctrl-C with 130.
    """
    _consume(where, Options(**options))


def _consume(where: Where, options: Options) -> None:
    if options.group is not None:
        raise LocalError(
            f"--group {options.group}: consumer groups are not available yet; leave it out, and choose with --from"
            " where to begin"
        )
    found = where.find()
    watched = sys.stderr.isatty() and not options.quiet
    shown = watched and _goes_into_a_file()
    started, tally = time.monotonic(), Tally()
    with _consumer(found, options) as consumer:
        share = _share(consumer, options, tally) if shown else lambda: None
        with progress(tally, share, shown=shown):
            _print(consumer.batches(follow=options.follow), options, tally)
    if shown:
        tell(summary("consumed", tally.records, f"from {options.topic}", time.monotonic() - started))
    elif watched and not tally.records:
        tell("nothing from there on; --follow waits for what comes", dim=True)


def _goes_into_a_file() -> bool:
    """Not onto the screen, nor into a pipe: what reads that often shows something on the same screen itself."""
    mode = os.fstat(sys.stdout.fileno()).st_mode
    return not (sys.stdout.isatty() or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))


def _consumer(found: "Found", options: Options) -> "Consumer":
    from headrace.client.consumer import Consumer

    with naming_remedy(options.topic, found.namespace):
        return Consumer(
            options.topic,
            start=options.start,
            partitions=None if options.partition is None else [options.partition],
            server=found.server,
            namespace=found.namespace,
            timeout_ms=_TIMEOUT_MS,
        )


def _print(batches: Iterator[Any], options: Options, tally: Tally) -> None:
    from headrace.cli.forms import Rows

    out, form = sys.stdout.buffer, _form(options.output)
    for batch in _limited(batches, options.max_records):
        content = b"".join(line + b"\n" for line in form(Rows.of(batch)))
        out.write(content)
        tally.records += batch.num_rows
        tally.bytes += len(content)
        if options.follow:
            out.flush()
    out.flush()


def _limited(batches: Iterator[Any], max_records: int | None) -> Iterator[Any]:
    """Batches of so many records in all; the one that would be too much is cut, and no other is waited for."""
    left = max_records
    for batch in batches:
        yield batch if left is None else batch.slice(0, left)
        if left is not None:
            left -= batch.num_rows
            if left <= 0:
                return


def _form(output: str) -> "Form":
    from headrace.cli import forms

    if output != "table":
        return forms.values if output == "value" else forms.json_lines
    sys.stdout.buffer.write(forms.table_title() + b"\n")
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    return partial(forms.table, width=width)


def _share(consumer: "Consumer", options: Options, tally: Tally) -> Callable[[], float | None]:
    """What part of all that will come has come; None where it never ends."""
    total = options.max_records
    if not options.follow:
        there = sum(max(0, end - consumer.position(place.partition)) for place, end in consumer.end_offsets().items())
        total = there if total is None else min(total, there)
    return lambda: tally.records / total if total else None
