"""Members and coordinators die: others go on where the dead had committed, and no record is skipped."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

import pytest

from headrace import Producer
from headrace.core.resources.metadata import API_VERSION
from tests.support.cluster import Cluster, running_cluster
from tests.support.group_calls import GroupCalls, create_offsets_topic
from tests.support.waiting import wait_for

MEMBER = """
import sys
from headrace import Consumer
for record in Consumer(sys.argv[1], group="billing", auto_commit_interval_ms=100):
    print(record.partition, record.offset, flush=True)
"""
_PARTITIONS = 4
_GROUPS = "/apis/headrace.io/v1alpha1/namespaces/default/consumergroups"


@dataclass
class MemberProcess:
    """A program that reads, and tells each record before it asks for the next."""

    servers: str
    read: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", MEMBER, "flights"],
            env={**os.environ, "HEADRACE_SERVER": self.servers},
            stdout=subprocess.PIPE,
            text=True,
        )
        self._thread = Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            partition, offset = line.split()
            self.read.append((int(partition), int(offset)))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)
        self._thread.join(30)
        assert self.process.stdout is not None
        self.process.stdout.close()

    @property
    def partitions(self) -> set[int]:
        return {partition for partition, _ in self.read}


@dataclass
class Writing:
    producer: Producer
    written: int = 0

    def run(self, stop: Event) -> None:
        while not stop.wait(0.01):
            for partition in range(_PARTITIONS):
                self.producer.send("flights", b"x", partition=partition)
            self.written += 1


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running_cluster(tmp_path, brokers=3) as cluster:
        cluster.create_topic("flights", partitions=_PARTITIONS, replicas=3)
        create_offsets_topic(cluster, replicas=3)
        yield cluster


def servers(cluster: Cluster) -> str:
    return ",".join(cluster.url(broker) for broker in range(3))


@contextmanager
def writing(cluster: Cluster) -> Iterator[Writing]:
    stop = Event()
    with Producer(servers(cluster)) as producer:
        load = Writing(producer)
        thread = Thread(target=load.run, args=(stop,), daemon=True)
        thread.start()
        try:
            yield load
        finally:
            stop.set()
            thread.join(60)


@contextmanager
def members(cluster: Cluster, count: int) -> Iterator[list[MemberProcess]]:
    started = [MemberProcess(servers(cluster)) for _ in range(count)]
    try:
        yield started
    finally:
        for each in started:
            each.kill()


def everything(load: Writing) -> set[tuple[int, int]]:
    return {(partition, offset) for partition in range(_PARTITIONS) for offset in range(load.written)}


@pytest.mark.timeout(240)
def test_should_move_what_a_killed_member_had_and_skip_nothing(cluster: Cluster) -> None:
    group = {"apiVersion": API_VERSION, "kind": "ConsumerGroup", "metadata": {"name": "billing"}}
    cluster.kube("POST", _GROUPS, {**group, "spec": {"sessionTimeout": "6s"}})
    with members(cluster, 2) as (victim, survivor):
        with writing(cluster) as load:
            wait_for(lambda: len(victim.partitions) >= 2 and len(survivor.partitions) >= 2, "both read", 90)
            wait_for(lambda: len(latest(victim)) == len(latest(survivor)) == 2, "each has its own", 90)
            victim.kill()
            had, before = latest(victim), len(survivor.read)
            wait_for(lambda: {p for p, _ in survivor.read[before:]} >= had.keys(), "the survivor has everything", 90)
        wait_for(lambda: everything(load) <= {*victim.read, *survivor.read}, "everything is read", 90)
        for partition, last in had.items():
            first = next(offset for number, offset in survivor.read[before:] if number == partition)
            assert first <= last + 1, "a record was skipped"


@pytest.mark.timeout(240)
def test_should_go_on_when_the_coordinator_is_killed(cluster: Cluster) -> None:
    calls = GroupCalls([cluster.url(broker) for broker in range(3)])
    with members(cluster, 2) as readers:
        with writing(cluster) as load:
            wait_for(lambda: all(len(latest(reader)) == 2 for reader in readers), "each has its own", 90)
            had = [latest(reader).keys() for reader in readers]
            cluster.broker(calls.get("/coordinator")["broker"]).kill()
            at = load.written
            wait_for(lambda: all(min(latest(reader).values()) > at for reader in readers), "both go on", 90)
            wait_for(lambda: min(calls.offsets().values()) > at, "commits are taken again", 90)
            assert [latest(reader).keys() for reader in readers] == had, "nobody had to give anything up"
        wait_for(lambda: everything(load) <= {place for reader in readers for place in reader.read}, "all is read", 90)


def latest(reader: MemberProcess) -> dict[int, int]:
    """How far it is in what it reads by now."""
    return dict(reader.read[-100:])
