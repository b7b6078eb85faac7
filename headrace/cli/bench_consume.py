"""The two measurements of `headrace bench` that read records: `consume` and `latency`.

`consume` reads to the ends as they are, again and again, until there was enough or nothing new. `latency` sends one
record at a time, and takes the time from the call that sends it to a consumer that has it.
"""

import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Any

import click

from headrace.cli.bench_figures import ConsumeFigures, consume_header, latency_lines, metric_lines
from headrace.cli.options import Where, naming_remedy
from headrace.client.consumer.consumer import Consumer
from headrace.client.producer.producer import Producer
from headrace.client.record import Record
from headrace.core.errors import LocalError

_BROKER_TIMEOUT_MS = 30_000
_POLL_S = 0.1
_RECORDS_A_LOOK = 1_000
"""The number of records between two checks of the clock."""
_TIMEOUT_MS = 30_000
_PROGRESS_EVERY = 1_000
_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"


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
    """Yield (records, bytes of keys and values) of some records at a time, to the ends as they are now."""
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


@dataclass(frozen=True, slots=True)
class LatencyOptions:
    topic: str
    num_records: int
    record_size: int
    acks: Any
    key_size: int
    num_headers: int
    header_name_size: int
    header_size: int
    """The size of the headers; -1: a header without a value."""
    where: Where


@dataclass(frozen=True, slots=True)
class _Sent:
    key: bytes | None
    value: bytes
    headers: tuple[tuple[str, bytes | None], ...]


def run_latency(options: LatencyOptions) -> None:
    found = options.where.find()
    producer = Producer(found.server, found.namespace, acks=options.acks, linger_ms=0, delivery_timeout_ms=_TIMEOUT_MS)
    times_ns: list[int] = []
    with producer:
        with naming_remedy(options.where, found.namespace, options.topic):
            consumer = Consumer(
                options.topic, start="latest", server=found.server, namespace=found.namespace, timeout_ms=_TIMEOUT_MS
            )
        with consumer:
            try:
                _measure(producer, consumer, options, times_ns)
            finally:  # Ctrl-C, too, ends with the figures so far.
                if times_ns:
                    click.echo("\n".join(latency_lines(times_ns)))


def _measure(producer: Producer, consumer: Consumer, options: LatencyOptions, times_ns: list[int]) -> None:
    random, records = Random(0), iter(consumer)
    for number in range(options.num_records):
        sent = _record(random, options)
        began_ns = time.perf_counter_ns()
        producer.send(options.topic, sent.value, sent.key, headers=sent.headers).result()
        read = next(records)
        took_ns = time.perf_counter_ns() - began_ns
        _check(read, sent)
        times_ns.append(took_ns)
        if number % _PROGRESS_EVERY == 0:
            click.echo(f"{number}\t{took_ns / 1_000_000}")


def _record(random: Random, options: LatencyOptions) -> _Sent:
    def letters(size: int) -> bytes:
        return bytes([random.choice(_LETTERS)]) * size

    content = None if options.header_size < 0 else letters(options.header_size)
    headers = tuple((letters(options.header_name_size).decode(), content) for _ in range(options.num_headers))
    return _Sent(letters(options.key_size) or None, letters(options.record_size), headers)


def _check(read: Record, sent: _Sent) -> None:
    if (read.key, read.value, read.headers) != (sent.key, sent.value, sent.headers):
        raise LocalError(
            f"the record at offset {read.offset} of {read.topic}/{read.partition} is not the one that was sent: give a"
            " topic that nobody else writes to"
        )
