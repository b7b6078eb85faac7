"""`headrace bench produce`: sends, and counts each record when its acknowledgement comes.

Acknowledgements come on the producer's own threads, which only note the time: measuring must cost less than what is
measured. The thread that sends adds the notes to the figures now and then.
"""

import resource
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import click

from headrace.cli.bench_figures import ProduceFigures, metric_lines, wait_ms
from headrace.cli.options import Where, naming_remedy
from headrace.client.producer.producer import Producer
from headrace.core.errors import HeadraceError, LocalError

_DELIVERY_TIMEOUT_MS = 30_000
_POOL_BYTES = 1 << 20
"""The size of the random letters that values are cut from: making fresh ones would be what is measured."""
_SLEEP_MS_MIN = 2.0
"""The shortest wait; shorter ones are added up to this length, as the system sleeps no shorter."""
_RECORDS_A_LOOK = 1_000
_TIMED_TOGETHER_MAX = 10
_TIMES_MIN = 10_000
"""The number of latencies that are taken at least, where there are as many records."""
_CHUNK_RECORDS_MAX = 20_000
_THROTTLED_CHUNKS_PER_S = 20
"""The number of pieces a second in which columns are sent with --throughput."""


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
    """Run the command. Raises what `send` raises, and the reason why records were not acknowledged."""
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
            with naming_remedy(options.where, found.namespace, options.topic):
                (run.send_columns if options.columns else run.send_records)(values)
            producer.flush()
        finally:  # Ctrl-C, too, ends with the figures so far.
            run.print_totals()
        run.check()


class _Note(NamedTuple):
    """Records that were sent together, and the time of their acknowledgement; times in seconds."""

    arrived: float
    sent: float
    records: int
    size_bytes: int
    figures: Sequence[ProduceFigures]
    delivery: Future[Any]


class _Run:
    def __init__(self, producer: Producer, options: ProduceOptions) -> None:
        self._producer = producer
        self._options = options
        self._started = time.monotonic()
        self._figures: tuple[ProduceFigures, ...] = (ProduceFigures(_ms(self._started)),)
        """The figures of all records, and of those after the warm-up."""
        self._notes: deque[_Note] = deque()
        self._error: BaseException | None = None

    def send_records(self, values: Iterator[bytes]) -> None:
        """Send in runs, between which the figures are updated, so that little is done for each record."""
        topic, send, together, sent = self._options.topic, self._producer.send, _timed_together(self._options), 0
        while run := self._next_run(sent, _RECORDS_A_LOOK):
            for first in range(sent, sent + run, together):
                group = list(islice(values, min(together, sent + run - first)))
                now = time.monotonic()
                delivery = send(topic, group[0])
                for value in group[1:]:
                    send(topic, value)
                size = sum(map(len, group))
                delivery.add_done_callback(partial(self._note, now, len(group), size, self._figures))
                self._throttle(first + len(group))
            sent += run
            self._look()

    def send_columns(self, values: Iterator[bytes]) -> None:
        """Send the same column over and over, where its values are random anyway."""
        chunk, sent, column = _chunk_records(self._options), 0, list[bytes]()
        while run := self._next_run(sent, chunk):
            if self._options.payload_monotonic or len(column) < run:
                column = list(islice(values, run))
            now, size = time.monotonic(), sum(map(len, column[:run]))
            delivery = self._producer.send_batch(self._options.topic, values=column[:run])
            delivery.add_done_callback(partial(self._note, now, run, size, self._figures))
            sent += run
            self._throttle(sent)
            self._look()

    def _next_run(self, sent: int, most: int) -> int:
        """Return how many records to send before the figures are updated or change; 0 at the end, or once one has
        failed."""
        warmup = self._options.warmup_records
        if self._figures[0].failed:
            return 0
        if sent < warmup:
            return min(most, warmup - sent)
        if warmup and len(self._figures) == 1:
            self._figures[0].quiet = True
            self._figures = (*self._figures, ProduceFigures(_ms(time.monotonic()), steady=True))
        return min(most, self._options.num_records - sent)

    def print_totals(self) -> None:
        """Print the totals; nothing where nothing was sent, as an error has the reason then."""
        self._look()
        if not self._figures[0].records + self._figures[0].failed:
            return
        now_ms = _ms(time.monotonic())
        for figures in self._figures:
            click.echo(figures.total_line(now_ms))
        if self._options.print_metrics:
            click.echo("\n".join(metric_lines(self._metrics())))

    def check(self) -> None:
        """Raise the reason why records were not acknowledged, if any were not."""
        failed = self._figures[0].failed
        if failed:
            raise HeadraceError(f"{failed} records were not acknowledged: {self._error}")

    def _note(
        self, sent: float, records: int, size_bytes: int, figures: Sequence[ProduceFigures], delivery: Future[Any]
    ) -> None:
        """Note an acknowledgement; called on one of the producer's threads."""
        self._notes.append(_Note(time.monotonic(), sent, records, size_bytes, figures, delivery))

    def _look(self) -> None:
        """Add what has arrived to the figures."""
        for _ in range(len(self._notes)):
            note = self._notes.popleft()
            error = note.delivery.exception()
            if error is not None:
                self._error = self._error or error
                self._figures[0].failed += note.records
                continue
            latency_ms, now_ms = int((note.arrived - note.sent) * 1000), _ms(note.arrived)
            for figures in note.figures:
                for line in figures.add(latency_ms, note.records, note.size_bytes, now_ms):
                    click.echo(line)

    def _throttle(self, sent: int) -> None:
        if self._options.throughput < 0:
            return
        wait = wait_ms(sent, (time.monotonic() - self._started) * 1000, self._options.throughput)
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


def _timed_together(options: ProduceOptions) -> int:
    """Return how many records, sent one right after the other, have one time: a future's callback costs as much as a
    third of `send`, and many records give good percentiles all the same."""
    if options.throughput > 0:
        return 1
    return max(1, min(_TIMED_TOGETHER_MAX, options.num_records // _TIMES_MIN))


def _chunk_records(options: ProduceOptions) -> int:
    """Return how many records one `send_batch` takes: about a batch, and fewer where the rate is limited."""
    chunk = min(_CHUNK_RECORDS_MAX, max(1, options.batch_size // (options.record_size or 1)))
    if options.throughput > 0:
        chunk = min(chunk, max(1, int(options.throughput / _THROTTLED_CHUNKS_PER_S)))
    return min(chunk, options.num_records)


def _values(options: ProduceOptions) -> Iterator[bytes]:
    """Yield values without end. Raises LocalError for a payload file that holds nothing."""
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


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
