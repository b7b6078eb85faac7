"""The Headrace SDK at work, in a process of its own: `python -m bench.peers.headrace_client JOB`.

The setting `columns` chooses between Arrow columns (`send_batch`, `batches`) and one call per record, and
`keep_large_buffers` asks glibc for what a process that reads bulk data wants; all others are keywords of `Producer`.
"""

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from itertools import cycle, islice
from typing import Any

import click
import pyarrow as pa
import pyarrow.compute as pc

from bench.peers.job import PRODUCERS, Answer, Job, Work, answer, timed
from headrace import AsyncProducer, Consumer, Producer
from headrace.http2.memory import keep_large_buffers

_COLUMN_RECORDS = 100_000
"""Of one `send_batch`: the SDK cuts it into batches."""


def produce(job: Job) -> Answer:
    return _produce_columns(job) if job.settings["columns"] else _produce_records(job)


def _produce_columns(job: Job) -> Answer:
    """The same column over and over: to make it is the work of whoever has the data, not of a client."""
    values = pa.array(list(islice(cycle(job.values()), min(_COLUMN_RECORDS, job.records))), pa.binary())
    with _producer(job) as producer:
        started = time.perf_counter()
        for first in range(0, job.records, len(values)):
            producer.send_batch(job.topic, values=values.slice(0, min(len(values), job.records - first)))
        producer.flush()
        return Answer(job.records, time.perf_counter() - started)


def _produce_records(job: Job) -> Answer:
    values = job.values()
    with _producer(job) as producer:
        send, topic = producer.send, job.topic
        started = time.perf_counter()
        for value in islice(cycle(values), job.records):
            send(topic, value)
        producer.flush()
        return Answer(job.records, time.perf_counter() - started)


def consume(job: Job) -> Answer:
    if job.settings.get("keep_large_buffers"):
        keep_large_buffers()
    with Consumer(job.topic, server=job.server) as consumer:
        started, records, size_bytes = time.perf_counter(), 0, 0
        for count, size in _pieces(consumer, columns=job.settings["columns"]):
            records += count
            size_bytes += size
        if records < job.records:
            raise RuntimeError(f"the topic gave {records} records, and {job.records} were written")
        return Answer(records, time.perf_counter() - started)


def _pieces(consumer: Consumer, *, columns: bool) -> Iterator[tuple[int, int]]:
    """(records, bytes of keys and values), so that every value is looked at as Kafka's tool does."""
    if columns:
        for batch in consumer.batches(follow=False):
            yield batch.num_rows, sum(_bytes_of(batch.column(name)) for name in ("key", "value"))
    else:
        for record in consumer.records(follow=False):
            yield 1, len(record.key or b"") + len(record.value or b"")


def _bytes_of(column: Any) -> int:
    return pc.sum(pc.binary_length(column)).as_py() or 0


def round_trip(job: Job) -> Answer:
    values = job.values()
    with _producer(job) as producer:
        for value in islice(cycle(values), job.records):
            producer.send(job.topic, value).result()
        times, started = [], time.perf_counter()
        for value in islice(cycle(values), job.records):
            sent = time.perf_counter()
            producer.send(job.topic, value).result()
            times.append(time.perf_counter() - sent)
        return timed(job.records, times, time.perf_counter() - started)


def many_producers(job: Job) -> Answer:
    """All in one event loop, as Python has it; Kafka's are Java's threads."""
    return asyncio.run(_many_producers(job))


async def _many_producers(job: Job) -> Answer:
    value, times = job.values()[0], list[float]()
    async with AsyncExitStack() as open_ones:
        producers = [
            await open_ones.enter_async_context(AsyncProducer(job.server, **_options(job))) for _ in range(PRODUCERS)
        ]

        async def send(producer: AsyncProducer) -> None:
            for _ in range(job.records // PRODUCERS):
                sent = time.perf_counter()
                await (await producer.send(job.topic, value))
                times.append(time.perf_counter() - sent)

        await asyncio.gather(*map(send, producers))
        times.clear()
        started = time.perf_counter()
        await asyncio.gather(*map(send, producers))
        return timed(len(times), times, time.perf_counter() - started)


def _producer(job: Job) -> Producer:
    return Producer(job.server, **_options(job))


def _options(job: Job) -> dict[str, Any]:
    return {name: value for name, value in job.settings.items() if name != "columns"}


if __name__ == "__main__":
    doers = {
        Work.PRODUCE: produce,
        Work.PRODUCE_REPLICATED: produce,
        Work.CONSUME: consume,
        Work.ROUND_TRIP: round_trip,
        Work.MANY_PRODUCERS: many_producers,
    }
    click.echo(answer(sys.argv[1], doers))
