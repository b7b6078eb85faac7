"""Answers are lost, again and again, and the broker is killed between writing and answering: each record is there once.

Clients reach the broker through a relay that cuts all connections off while batches are on their way. So answers are
lost whose batches were written, and the producers send those again.
"""

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from headrace import AsyncProducer, Consumer, Producer
from headrace.dev.supervisor.layout import free_port_run
from tests.support.cluster import Cluster, http, running_cluster
from tests.support.patience import patient
from tests.support.relay import Relay, relaying
from tests.support.waiting import wait_for

CUTS = 6
KILLS = 2
RECORDS_BETWEEN = 100


class Load(ABC):
    """One producer that numbers its records, until it is told to stop."""

    def __init__(self, topic: str, server: str) -> None:
        self.topic, self.server = topic, server
        self.stopped = Event()
        self.acknowledged: list[tuple[int, int]] = []
        """(offset, number)."""

    @abstractmethod
    def run(self) -> None: ...


class Threads(Load):
    def run(self) -> None:
        with Producer(self.server, linger_ms=0, batch_bytes=1 << 13) as producer:
            number = 0
            while not self.stopped.is_set():
                burst = [producer.send(self.topic, str(number + i)) for i in range(50)]
                written = [delivery.result(patient(60)) for delivery in burst]
                self.acknowledged += [(metadata.offset, number + i) for i, metadata in enumerate(written)]
                number += len(burst)


class Tasks(Load):
    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        async with AsyncProducer(self.server, linger_ms=0, batch_bytes=1 << 13) as producer:
            number = 0
            while not self.stopped.is_set():
                burst = [await producer.send(self.topic, str(number + i)) for i in range(50)]
                written = await asyncio.gather(*burst)
                self.acknowledged += [(metadata.offset, number + i) for i, metadata in enumerate(written)]
                number += len(burst)


@contextmanager
def running(load: Load) -> Iterator[None]:
    thread = Thread(target=load.run)
    thread.start()
    try:
        yield
    finally:
        load.stopped.set()
        thread.join(patient(90))
        assert not thread.is_alive()


@contextmanager
def relayed_cluster(path: Path) -> Iterator[tuple[Cluster, Relay, Callable[[], None]]]:
    """One broker behind a relay, and what starts it again."""
    port = free_port_run(1, random.Random())  # nobody takes it while the broker is down
    with relaying(port) as relay, running_cluster(path, brokers=0) as cluster:

        def start() -> None:
            cluster.start_broker(0, "--port", str(port), "--advertised-url", relay.url)

        start()
        yield cluster, relay, start


def repeated_batches(cluster: Cluster, topic: str) -> float:
    lines = http("GET", f"{cluster.url()}/metrics").body.decode().splitlines()
    series = [line for line in lines if line.startswith("headrace_broker_batches_repeated_total{") and topic in line]
    return sum(float(line.split()[-1]) for line in series)


def test_should_write_each_record_once_and_in_order_when_answers_are_lost_and_the_broker_is_killed(
    tmp_path: Path,
) -> None:
    with relayed_cluster(tmp_path) as (cluster, relay, start):
        loads = [Threads("threads", relay.url), Tasks("tasks", relay.url)]
        for load in loads:
            cluster.create_topic(load.topic)
        with running(loads[0]), running(loads[1]):
            repeated = 0.0
            for strike in range(CUTS):
                go_on(loads)
                if strike % (CUTS // KILLS) == 0:
                    repeated += sum(repeated_batches(cluster, load.topic) for load in loads)
                    cluster.broker().kill()
                    start()
                else:
                    relay.cut()
            go_on(loads)
            repeated += sum(repeated_batches(cluster, load.topic) for load in loads)
        for load in loads:
            with Consumer(load.topic, server=relay.url) as consumer:
                found = [(record.offset, int(record.value or b"")) for record in consumer.records(follow=False)]
            assert found == [(number, number) for number in range(len(found))], "once, and in order"
            assert load.acknowledged == found
        assert repeated > 0, "or nothing was tried"


def go_on(loads: list[Load]) -> None:
    for load in loads:
        goal = len(load.acknowledged) + RECORDS_BETWEEN
        wait_for(lambda load=load, goal=goal: len(load.acknowledged) >= goal, f"{load.topic} go on")  # type: ignore[misc]
