"""`headrace bench latency`: one record at a time, from the call that sends it to a consumer that has it."""

import time
from dataclasses import dataclass
from random import Random
from typing import Any

import click

from headrace.cli.bench_figures import latency_lines
from headrace.cli.options import Where, naming_remedy
from headrace.client.consumer.consumer import Consumer
from headrace.client.producer.producer import Producer
from headrace.client.record import Record
from headrace.core.errors import LocalError

_TIMEOUT_MS = 30_000
_PROGRESS_EVERY = 1_000
_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"


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
    """-1: a header without a value."""
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
