"""confluent-kafka for Python at work, in a process of its own: `python -m bench.peers.confluent_client JOB`."""

import sys
import time
from itertools import cycle, islice
from typing import Any

import click
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from bench.peers.job import Answer, Job, Work, answer, timed

_POLL_RECORDS = 10_000
_CALLS_A_POLL = 1_000
_TIMEOUT_S = 60.0
_FROM_START = 0


def produce(job: Job) -> Answer:
    """One call per record: `produce_batch`, which takes a dict for each, was no faster."""
    producer, values = _producer(job), job.values()
    send, poll, topic = producer.produce, producer.poll, job.topic
    started = time.perf_counter()
    for number, value in enumerate(islice(cycle(values), job.records)):
        try:
            send(topic, value)
        except BufferError:
            _send_when_there_is_room(producer, topic, value)
        if number % _CALLS_A_POLL == 0:
            poll(0)
    _flush(producer)
    return Answer(job.records, time.perf_counter() - started)


def consume(job: Job) -> Answer:
    consumer = Consumer(
        {"bootstrap.servers": job.server, "group.id": "bench", "enable.auto.commit": False, **job.settings}
    )
    try:
        consumer.assign([TopicPartition(job.topic, 0, _FROM_START)])
        started, left, size_bytes = time.perf_counter(), job.records, 0
        while left > 0:
            messages = consumer.consume(_POLL_RECORDS, _TIMEOUT_S)
            if not messages:
                raise RuntimeError(f"nothing came for {_TIMEOUT_S:g} s, and {left} records are missing")
            size_bytes += sum(map(_size, messages))
            left -= len(messages)
        return Answer(job.records - left, time.perf_counter() - started)
    finally:
        consumer.close()


def _size(message: Message) -> int:
    error = message.error()
    if error is not None:
        raise KafkaException(error)
    return len(message.key() or b"") + len(message.value() or b"")


def round_trip(job: Job) -> Answer:
    producer, values = _producer(job), job.values()
    for value in islice(cycle(values), job.records):
        _send_and_wait(producer, job.topic, value)
    times, started = [], time.perf_counter()
    for value in islice(cycle(values), job.records):
        sent = time.perf_counter()
        _send_and_wait(producer, job.topic, value)
        times.append(time.perf_counter() - sent)
    return timed(job.records, times, time.perf_counter() - started)


def _producer(job: Job) -> Producer:
    return Producer({"bootstrap.servers": job.server, **job.settings})


def _send_and_wait(producer: Producer, topic: str, value: bytes) -> None:
    failures: list[Any] = []
    producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
    _flush(producer)
    if failures:
        raise KafkaException(failures[0])


def _send_when_there_is_room(producer: Producer, topic: str, value: bytes) -> None:
    while True:
        producer.poll(0.01)
        try:
            return producer.produce(topic, value)
        except BufferError:
            continue


def _flush(producer: Producer) -> None:
    left = producer.flush(_TIMEOUT_S)
    if left:
        raise RuntimeError(f"{left} records were not acknowledged within {_TIMEOUT_S:g} s")


if __name__ == "__main__":
    doers = {
        Work.PRODUCE: produce,
        Work.PRODUCE_REPLICATED: produce,
        Work.CONSUME: consume,
        Work.ROUND_TRIP: round_trip,
    }
    click.echo(answer(sys.argv[1], doers))
