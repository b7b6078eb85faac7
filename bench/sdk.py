"""Produce, fetch and latency as users of the SDK have them."""

import time
from itertools import islice

import pyarrow as pa

from headrace import Consumer, Producer


def send_batch(server: str, topic: str, values: pa.Array) -> float:
    """Records per second from an Arrow column until all are acknowledged."""
    with Producer(server) as producer:
        started = time.perf_counter()
        producer.send_batch(topic, values=values)
        producer.flush()
        return len(values) / (time.perf_counter() - started)


def send(server: str, topic: str, values: list[bytes]) -> float:
    """Records per second, one call each, until all are acknowledged."""
    with Producer(server) as producer:
        started = time.perf_counter()
        for value in values:
            producer.send(topic, value)
        producer.flush()
        return len(values) / (time.perf_counter() - started)


def send_times(server: str, topic: str, count: int, value: bytes) -> list[float]:
    """Seconds of each of `count` records, one at a time, until it is acknowledged."""
    times = []
    with Producer(server, linger_ms=0) as producer:
        for _ in range(count):
            started = time.perf_counter()
            producer.send(topic, value).result()
            times.append(time.perf_counter() - started)
    return times


def read_batches(server: str, topic: str) -> float:
    """Records per second as `pyarrow.RecordBatch`, from start to end."""
    with Consumer(topic, server=server) as consumer:
        started = time.perf_counter()
        count = sum(int(batch.num_rows) for batch in consumer.batches(follow=False))
        return count / (time.perf_counter() - started)


def read_records(server: str, topic: str, limit: int) -> float:
    """Records per second as Python objects, at most `limit` of them."""
    with Consumer(topic, server=server) as consumer:
        started = time.perf_counter()
        count = sum(1 for _ in islice(consumer.records(follow=False), limit))
        return count / (time.perf_counter() - started)
