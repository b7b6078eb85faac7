"""Programs end, are interrupted and fork, with clients still open: nothing hangs, and nothing that was sent is lost."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from headrace.client.record import TopicPartition
from headrace.client.transport.brokers import Brokers
from headrace.core.errors import LocalError
from tests.support.client_bench import Bench
from tests.support.patience import patient
from tests.support.waiting import wait_for

FORGETS_TO_CLOSE = """
import sys
from headrace import Producer
producer = Producer(linger_ms=60_000)
for partition in range(2):
    producer.send(sys.argv[1], "late", partition=partition)
"""
STARTS_NO_THREADS_AT_ITS_END = """
import atexit, threading
def refuse(thread):
    raise RuntimeError("can't create new thread at interpreter shutdown")  # as Python 3.12 does
atexit.register(setattr, threading.Thread, "start", refuse)
"""
FORKS = """
import os, signal, sys
from headrace import Consumer, Producer
from headrace.core.errors import LocalError
topic = sys.argv[1]
producer, consumer = Producer(linger_ms=60_000), Consumer(topic)
producer.send(topic, "before")
child = os.fork()
if child == 0:
    signal.alarm(300)  # A child that hangs must not outlive the test.
    for use in (lambda: producer.send(topic, "child's"), producer.flush, lambda: next(iter(consumer))):
        try:
            use()
        except LocalError as error:
            assert "before a fork" in error.message, error
        else:
            sys.exit(9)
    producer.close()
    consumer.close()
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
producer.send(topic, "after")
producer.close()
print([record.value.decode() for record in consumer.records(follow=False)])
"""
INTERRUPTED = """
import os, signal, sys, threading
from random import Random
from headrace import Producer
random, over, within, interrupted = Random(0), threading.Event(), False, 0
def arrived(number, frame):
    if within:  # What the SDK does with it, not what this program does.
        raise KeyboardInterrupt
def keep_interrupting():
    while not over.wait(random.uniform(0, 0.01)):
        os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, arrived)
with Producer(linger_ms=0) as producer:
    deliveries = [producer.send(sys.argv[1], "first")]
    deliveries[0].result()
    threading.Thread(target=keep_interrupting).start()
    while interrupted < 250:
        try:
            within = True
            deliveries.append(producer.send(sys.argv[1], "next"))
            deliveries[-1].result()
        except KeyboardInterrupt:
            interrupted += 1
        finally:
            within = False
    over.set()
    offsets = [delivery.result().offset for delivery in deliveries]
    assert offsets == sorted(set(offsets)), "two records were told of the same offset"
    print(len(offsets))
"""


def run(bench: Bench, program: str) -> str:
    environment = {**os.environ, "HEADRACE_SERVER": bench.server}
    command = [sys.executable, "-c", program, bench.topic]
    return subprocess.run(
        command, env=environment, check=True, timeout=patient(110), stdout=subprocess.PIPE, text=True
    ).stdout


@pytest.mark.parametrize("ending", ["", STARTS_NO_THREADS_AT_ITS_END])
def test_should_send_what_is_left_when_a_program_forgets_to_close(bench: Bench, ending: str) -> None:
    bench.create(partitions=2)
    run(bench, FORGETS_TO_CLOSE + ending)
    assert [(record.partition, record.value) for record in bench.read_all(partitions=[0])] == [(0, b"late")]
    assert [(record.partition, record.value) for record in bench.read_all(partitions=[1])] == [(1, b"late")]


def test_should_leave_everything_to_the_parent_when_a_program_forks(bench: Bench) -> None:
    bench.create()
    assert run(bench, FORKS) == "['before', 'after']\n"


def test_should_lose_no_answer_when_sending_or_waiting_is_interrupted(bench: Bench) -> None:
    bench.create()
    answered = int(run(bench, INTERRUPTED))
    assert len(list(bench.read_all())) >= answered


def test_should_refuse_whoever_still_waits_for_room_when_the_producer_is_closed(bench: Bench) -> None:
    bench.create()
    outcome: list[Exception] = []
    producer = bench.producer(linger_ms=0, batch_bytes=8_192, buffer_bytes=8_192)
    producer.send(bench.topic, b"first").result(patient(30))

    def send() -> None:
        try:
            producer.send(bench.topic, bytes(5_000))
        except LocalError as error:
            outcome.append(error)

    waiting = threading.Thread(target=send)
    closing = threading.Thread(target=producer.__exit__, args=(ValueError, ValueError(), None))
    with bench.frozen_brokers():
        last = producer.send(bench.topic, bytes(5_000))
        for thread in (waiting, closing):
            thread.start()
            wait_for(lambda ident=thread.ident: is_waiting(ident), "the thread waits")  # type: ignore[misc]
    closing.join(patient(30))
    waiting.join(patient(30))
    assert last.result(0).offset == 1
    assert "this producer is closed" in str(outcome[0])


def is_waiting(ident: int) -> bool:
    """Whether the thread is in a condition's `wait`."""
    return sys._current_frames()[ident].f_code is threading.Condition.wait.__code__


def test_should_stop_at_once_when_a_look_up_of_offsets_is_interrupted() -> None:
    brokers = Brokers("http://127.0.0.1:1", None, timeout_ms=3_600_000, request_timeout_ms=1_000)
    interrupt = threading.Timer(0.2, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))

    def look_up() -> None:
        interrupt.start()
        brokers.run(brokers.offsets([TopicPartition("flights", number) for number in range(2)], "latest"))

    with pytest.raises(KeyboardInterrupt):
        look_up()  # which would take an hour
    brokers.close()
