"""`headrace bench consume`: reads to the ends as they are, again and again, until there was enough or nothing new.

Reading in such passes keeps the time limit exact without a second thread; a pass that found nothing is followed by a
short wait, as Kafka's tool polls.
"""

import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import click

from headrace.cli.bench_figures import ConsumeFigures, consume_header, metric_lines
from headrace.cli.options import Where, naming_remedy
from headrace.client.consumer.consumer import Consumer

_BROKER_TIMEOUT_MS = 30_000
_POLL_S = 0.1
_RECORDS_A_LOOK = 1_000
"""Records between two looks at the clock."""


@dataclass(frozen=True, slots=True)
class ConsumeOptions:
    topic: str
    messages: int
    timeout_ms: int
    detailed: bool
    interval_ms: int
    hide_header: bool
    from_latest: bool
    print_metrics: bool
    columns: bool
    where: Where


def run_consume(options: ConsumeOptions) -> None:
    if not options.hide_header:
        click.echo(consume_header(detailed=options.detailed))
    started_ms, found = _wall_ms(), options.where.find()
    with naming_remedy(options.where, found.namespace, options.topic):
        consumer = Consumer(
            options.topic,
            start="latest" if options.from_latest else "earliest",
            server=found.server,
            namespace=found.namespace,
            timeout_ms=_BROKER_TIMEOUT_MS,
        )
    figures = ConsumeFigures(started_ms)
    with consumer:
        try:
            _read(consumer, options, figures)
        except BaseException:  # Ctrl-C, too, ends with the figures so far.
            if figures.records:
                _print(options, figures)
            raise
        _print(options, figures)


def _print(options: ConsumeOptions, figures: ConsumeFigures) -> None:
    now_ms = _wall_ms()
    click.echo(figures.progress_line(now_ms) if options.detailed else figures.total_line(now_ms))
    if options.print_metrics:
        click.echo("\n".join(metric_lines(_metrics(figures))))


def _read(consumer: Consumer, options: ConsumeOptions, figures: ConsumeFigures) -> None:
    last_ms = _wall_ms()
    while figures.records < options.messages:
        before = figures.records
        pieces = _column_pieces(consumer) if options.columns else _record_pieces(consumer, options.messages - before)
        for records, size_bytes in pieces:
            figures.add(records, size_bytes)
            last_ms = _wall_ms()
            if options.detailed and figures.is_due(last_ms, options.interval_ms):
                click.echo(figures.progress_line(last_ms))
            if figures.records >= options.messages:
                return
        if _wall_ms() - last_ms > options.timeout_ms:
            click.echo(
                "WARNING: Exiting before consuming the expected number of messages: timeout"
                f" ({options.timeout_ms} ms) exceeded. You can use the --timeout option to increase the timeout."
            )
            return
        if figures.records == before:
            time.sleep(_POLL_S)


def _record_pieces(consumer: Consumer, limit: int) -> Iterator[tuple[int, int]]:
    """(records, bytes of keys and values) of some records at a time, to the ends as they are now."""
    records = islice(consumer.records(follow=False), limit)
    while piece := list(islice(records, _RECORDS_A_LOOK)):
        yield len(piece), sum(len(record.key or b"") + len(record.value or b"") for record in piece)


def _column_pieces(consumer: Consumer) -> Iterator[tuple[int, int]]:
    import pyarrow.compute as pc

    for batch in consumer.batches(follow=False):
        sizes = (pc.sum(pc.binary_length(batch.column(name))).as_py() or 0 for name in ("key", "value"))
        yield batch.num_rows, sum(sizes)


def _metrics(figures: ConsumeFigures) -> dict[str, float]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "consumer-fetch-manager-metrics:records-consumed-total": figures.records,
        "consumer-fetch-manager-metrics:bytes-consumed-total": figures.size_bytes,
        "process-metrics:cpu-seconds": used.ru_utime + used.ru_stime,
        "process-metrics:max-resident-bytes": used.ru_maxrss * 1024,
    }


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
