"""`headrace bench produce`: sends, and counts each record when its acknowledgement comes.

Acknowledgements come on the producer's own threads, several at a time: figures are touched under one lock.
"""

import resource
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from pathlib import Path
from random import Random
from typing import Any

import click

from headrace.cli.bench_figures import ProduceFigures, metric_lines, wait_ms
from headrace.cli.options import Where
from headrace.client.producer import Producer
from headrace.core.errors import HeadraceError, LocalError

_DELIVERY_TIMEOUT_MS = 30_000
_POOL_BYTES = 1 << 20
"""Random letters that values are cut from: making fresh ones would be what is measured."""
_SLEEP_MS_MIN = 2.0
"""Waits are saved up to this length: the system sleeps no shorter."""
_CHUNK_RECORDS_MAX = 20_000
_THROTTLED_CHUNKS_PER_S = 20
"""With --throughput, columns are sent in so many pieces a second."""


@dataclass(frozen=True, slots=True)
class ProduceOptions:
    topic: str
    num_records: int
    record_size: int | None
    payload_file: Path | None
    payload_delimiter: str
    payload_monotonic: bool
    throughput: float
    warmup_records: int
    print_metrics: bool
    acks: Any
    compression: Any
    batch_size: int
    linger_ms: int
    columns: bool
    where: Where


def run_produce(options: ProduceOptions) -> None:
    """Raises what `send` raises, and why records were not acknowledged."""
    values, found = _values(options), options.where.find()
    producer = Producer(
        found.server,
        found.namespace,
        acks=options.acks,
        linger_ms=options.linger_ms,
        batch_bytes=options.batch_size,
        compression=options.compression,
        delivery_timeout_ms=_DELIVERY_TIMEOUT_MS,
    )
    with producer:
        if options.warmup_records:
            click.echo(
                f"Warmup first {options.warmup_records} records. Steady state results will print after the complete"
                " test summary."
            )
        run = _Run(producer, options)
        try:
            (run.send_columns if options.columns else run.send_records)(values)
            producer.flush()
        finally:  # Ctrl-C, too, ends with the figures so far.
            run.print_totals()
        run.check()


class _Run:
    def __init__(self, producer: Producer, options: ProduceOptions) -> None:
        self._producer = producer
        self._options = options
        self._lock = threading.Lock()
        self._started_ms = _now_ms()
        self._figures = [ProduceFigures(self._started_ms)]
        """Of all records, and after the warm-up of those that follow it."""
        self._error: BaseException | None = None

    def send_records(self, values: Iterator[bytes]) -> None:
        topic, send = self._options.topic, self._producer.send
        for number, value in enumerate(islice(values, self._options.num_records)):
            self._begin(number)
            sent_ms = _now_ms()
            send(topic, value).add_done_callback(partial(self._arrived, self._figures, sent_ms, 1, len(value)))
            self._throttle(number + 1)

    def send_columns(self, values: Iterator[bytes]) -> None:
        """The same column over and over, where its values are random anyway."""
        total, chunk = self._options.num_records, _chunk_records(self._options)
        column = list(islice(values, chunk))
        for first in range(0, total, chunk):
            column = column[: total - first]
            self._begin(first)
            sent_ms, size = _now_ms(), sum(map(len, column))
            delivery = self._producer.send_batch(self._options.topic, values=column)
            delivery.add_done_callback(partial(self._arrived, self._figures, sent_ms, len(column), size))
            self._throttle(first + len(column))
            if self._options.payload_monotonic:
                column = list(islice(values, chunk))

    def print_totals(self) -> None:
        """Nothing where nothing was sent: then an error says why."""
        with self._lock:
            if not self._figures[0].records + self._figures[0].failed:
                return
            now_ms = _now_ms()
            for figures in self._figures:
                click.echo(figures.total_line(now_ms))
            if self._options.print_metrics:
                click.echo("\n".join(metric_lines(self._metrics())))

    def check(self) -> None:
        """Raises why records were not acknowledged, if any were not."""
        failed = self._figures[0].failed
        if failed:
            raise HeadraceError(f"{failed} records were not acknowledged: {self._error}")

    def _begin(self, number: int) -> None:
        """From here on the records count as steady state too."""
        if len(self._figures) == 1 and 0 < self._options.warmup_records <= number:
            self._figures[0].quiet = True
            self._figures = [*self._figures, ProduceFigures(_now_ms(), steady=True)]

    def _arrived(
        self, heard: list[ProduceFigures], sent_ms: int, records: int, size_bytes: int, delivery: Future[Any]
    ) -> None:
        error, now_ms = delivery.exception(), _now_ms()
        with self._lock:
            if error is not None:
                self._error = self._error or error
                heard[0].failed += records
                return
            lines = [line for each in heard for line in each.add(now_ms - sent_ms, records, size_bytes, now_ms)]
        for line in lines:
            click.echo(line)

    def _throttle(self, sent: int) -> None:
        wait = wait_ms(sent, time.monotonic() * 1000 - self._started_ms, self._options.throughput)
        if wait >= _SLEEP_MS_MIN:
            time.sleep(wait / 1000)

    def _metrics(self) -> dict[str, float]:
        figures, used = self._figures[0], resource.getrusage(resource.RUSAGE_SELF)
        return {
            "producer-metrics:record-send-total": figures.records,
            "producer-metrics:record-error-total": figures.failed,
            "producer-metrics:outgoing-byte-total": figures.size_bytes,
            "process-metrics:cpu-seconds": used.ru_utime + used.ru_stime,
            "process-metrics:max-resident-bytes": used.ru_maxrss * 1024,
        }


def _chunk_records(options: ProduceOptions) -> int:
    """How many records one `send_batch` takes: about a batch, and less where the rate is limited."""
    chunk = min(_CHUNK_RECORDS_MAX, max(1, options.batch_size // (options.record_size or 1)))
    if options.throughput > 0:
        chunk = min(chunk, max(1, int(options.throughput / _THROTTLED_CHUNKS_PER_S)))
    return min(chunk, options.num_records)


def _values(options: ProduceOptions) -> Iterator[bytes]:
    """Without end. Raises LocalError for a payload file that holds nothing."""
    if options.record_size is not None:
        return _letters(options.record_size)
    if options.payload_file is not None:
        return _choices(_read_payloads(options.payload_file, options.payload_delimiter))
    return (b"%d" % number for number in count())


def _letters(size: int) -> Iterator[bytes]:
    random = Random(0)
    letters = bytes(ord("A") + value % 26 for value in range(256))
    pool = random.randbytes(_POOL_BYTES + size).translate(letters)
    while True:
        at = int(random.random() * _POOL_BYTES)
        yield pool[at : at + size]


def _choices(payloads: list[bytes]) -> Iterator[bytes]:
    random = Random(0)
    while True:
        yield payloads[int(random.random() * len(payloads))]


def _read_payloads(file: Path, delimiter: str) -> list[bytes]:
    click.echo(f"Reading payloads from: {file.absolute()}")
    text = delimiter.replace("\\n", "\n").replace("\\t", "\t")
    if not text:
        raise LocalError("--payload-delimiter is empty: give the text that stands between two values, such as '\\n'")
    payloads = file.read_bytes().removesuffix(text.encode()).split(text.encode())
    if payloads == [b""]:
        raise LocalError(f"--payload-file {file} is empty: write one value a line into it")
    click.echo(f"Number of messages read: {len(payloads)}")
    return payloads


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
