"""Brokers die, move and cannot be reached; clients go on, or say in one sentence why they cannot."""

import asyncio
import socket
import time
from concurrent.futures import Future
from itertools import islice
from pathlib import Path
from threading import Event, Thread

import pytest

from headrace import AsyncConsumer, AsyncProducer, Consumer, Producer, RecordMetadata, Servers
from headrace.core.errors import BrokerUnreachableError, HeadraceError, StaleTopicError
from tests.support.client_bench import Bench
from tests.support.cluster import Cluster, running_cluster
from tests.support.patience import patient
from tests.support.waiting import wait_for


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_should_lose_nothing_when_a_broker_is_killed_and_started_again(tmp_path: Path) -> None:
    with running_cluster(tmp_path, brokers=2) as cluster:
        cluster.create_topic(partitions=4)
        servers = f"{cluster.url(0)},{cluster.url(1)}"
        stop = Event()
        sent: list[Future[RecordMetadata]] = []

        def send() -> None:
            with Producer(servers, linger_ms=1) as producer:
                while not stop.is_set():
                    sent.append(producer.send("flights", str(len(sent)), f"key {len(sent) % 50}"))
                    if len(sent) % 100 == 0:
                        sent[-1].result(patient(60))

        cluster.create_topic("rides", partitions=4)
        tasks = AsyncLoad("rides", servers, stop)
        sender, loop = Thread(target=send), Thread(target=lambda: asyncio.run(tasks.run()))
        loop.start()
        with Consumer("flights", server=servers) as consumer:
            sender.start()
            seen = [int(record.value or b"") for record in islice(consumer, 500)]
            cluster.broker(1).kill()
            before, tasks.seen_at_the_fault = len(sent), len(tasks.seen)
            cluster.start_broker(1)
            wait_for(lambda: len(sent) > before + 500, "the producer goes on")
            wait_for(lambda: len(tasks.seen) > tasks.seen_at_the_fault + 500, "the tasks go on")
            stop.set()
            for thread in (sender, loop):
                thread.join(patient(60))
                assert not thread.is_alive()
            assert all(future.exception(0) is None for future in sent)
            seen += [int(record.value or b"") for record in consumer.records(follow=False)]
        # Nothing is missing, nothing is there twice though answers were lost, and nothing has been overtaken.
        assert sorted(seen) == list(range(len(sent)))
        for partition in range(4):
            with Consumer("flights", server=servers, partitions=[partition]) as consumer:
                numbers = [int(record.value or b"") for record in consumer.records(follow=False)]
            assert numbers == sorted(numbers)
        assert sorted(tasks.seen) == list(range(tasks.sent)), "the same of what tasks sent and read"


class AsyncLoad:
    """One task writes numbers, another reads them, until both are told to stop."""

    def __init__(self, topic: str, servers: str, stop: Event) -> None:
        self.topic, self.servers, self.stop = topic, servers, stop
        self.sent = self.seen_at_the_fault = 0
        self.seen: list[int] = []

    async def run(self) -> None:
        async with AsyncConsumer(self.topic, server=self.servers) as consumer:
            reading = asyncio.create_task(self._read(consumer))
            await self._write()
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            self.seen += [int(record.value or b"") async for record in consumer.records(follow=False)]

    async def _write(self) -> None:
        async with AsyncProducer(self.servers, linger_ms=1) as producer:
            while not self.stop.is_set():
                last = await producer.send(self.topic, str(self.sent), f"key {self.sent % 50}")
                self.sent += 1
                if self.sent % 100 == 0:
                    await last

    async def _read(self, consumer: AsyncConsumer) -> None:
        async for record in consumer:
            self.seen.append(int(record.value or b""))


def test_should_use_another_broker_when_the_leaders_url_leads_nowhere(tmp_path: Path) -> None:
    real, advertised = unused_port(), unused_port()
    with running_cluster(tmp_path, brokers=0) as cluster:
        cluster.start_broker(0, "--port", str(real), "--advertised-url", f"http://127.0.0.1:{advertised}")
        server = f"http://127.0.0.1:{real}"
        cluster.create_topic(partitions=2, wait=False)
        with Producer(server) as producer, Consumer("flights", server=server) as consumer:
            assert producer.send("flights", "a", partition=1).result(patient(30)).partition == 1
            assert [record.value for record in consumer.records(follow=False)] == [b"a"]


def test_should_let_another_broker_pass_it_on_when_only_that_one_can_be_reached(bench: Bench) -> None:
    """As from a laptop through a port-forward: the leader's URL works for brokers and not for the client."""
    bench.create(partitions=2)
    for servers in (bench.server, Servers((bench.server,), reaches_leaders=False)):
        with Producer(servers) as producer, Consumer(bench.topic, server=servers) as consumer:
            for partition in range(2):
                url = bench.cluster.leader_url(bench.topic, partition)
                if url != bench.server:
                    # What a connection that cannot be made leaves behind.
                    producer._brokers.directory.routes.failed(url, time.monotonic_ns() // 1_000_000)
                producer.send(bench.topic, "a", partition=partition).result(patient(30))
            assert {record.partition for record in consumer.records(follow=False)} == {0, 1}
            asked = {origin.authority for origin in producer._brokers._transport._connections}
            assert asked == {bench.server.removeprefix("http://")}


def test_should_find_the_other_servers_when_the_first_is_gone(bench: Bench) -> None:
    bench.create()
    with Producer(f"http://127.0.0.1:{unused_port()},{bench.server}") as producer:
        assert producer.send(bench.topic, "a").result(patient(30)).offset == 0


def test_should_say_who_cannot_be_reached_when_nobody_answers() -> None:
    server = f"http://127.0.0.1:{unused_port()}"
    said = r"gave up on the metadata of flights after .* refused"
    with Producer(server, delivery_timeout_ms=2_000) as producer, pytest.raises(BrokerUnreachableError, match=said):
        producer.send("flights", "a")
    with pytest.raises(BrokerUnreachableError, match=said):
        Consumer("flights", server=server, timeout_ms=2_000)


def test_should_fail_within_the_time_limit_when_the_only_broker_has_died(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        cluster.create_topic()
        producer = Producer(cluster.url(), delivery_timeout_ms=8_000)
        consumer = Consumer("flights", server=cluster.url(), timeout_ms=8_000)
        producer.send("flights", "a").result(patient(30))
        assert next(iter(consumer)).value == b"a"
        cluster.broker().kill()
        lost = producer.send("flights", "b")
        with pytest.raises(BrokerUnreachableError, match=r"gave up on reading flights/0 after \d+ tr"):
            next(iter(consumer))
        assert isinstance(lost.exception(patient(30)), BrokerUnreachableError)
        producer.send("flights", "c")
        producer.send("flights", "d")
        with pytest.raises(HeadraceError, match="2 records were not acknowledged: gave up on records for flights/0"):
            producer.close()
        consumer.close()


def test_should_tell_readers_when_a_topic_was_created_again_and_let_writers_go_on(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        cluster.create_topic()
        with Producer(cluster.url()) as producer, Consumer("flights", server=cluster.url()) as consumer:
            producer.send("flights", "old").result(patient(30))
            assert next(iter(consumer)).value == b"old"
            recreate(cluster)
            with pytest.raises(StaleTopicError, match="flights"):
                next(iter(consumer))
            assert producer.send("flights", "new").result(patient(30)).offset == 0
        with Consumer("flights", server=cluster.url()) as consumer:
            assert [record.value for record in consumer.records(follow=False)] == [b"new"]


def recreate(cluster: Cluster) -> None:
    topics = "/apis/headrace.io/v1alpha1/namespaces/default/topics"
    cluster.delete_topic()
    wait_for(lambda: not cluster.kube("GET", topics)["items"], "the topic is gone")
    cluster.create_topic()
