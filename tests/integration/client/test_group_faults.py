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
from tests.support.patience import patient
from tests.support.waiting import wait_for
from tests.support.world import CONSUMER_GROUPS

MEMBER = """
import sys
from headrace import Consumer
for record in Consumer(sys.argv[1], group="billing", auto_commit_interval_ms=100):
    print(record.partition, record.offset, flush=True)
"""
_PARTITIONS = 4


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
            if line.endswith("\n"):  # Else it died within it, before it asked for the next record.
                partition, offset = line.split()
                self.read.append((int(partition), int(offset)))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(patient(30))
        self._thread.join(patient(30))
        assert self.process.stdout is not None
        self.process.stdout.close()

    @property
    def partitions(self) -> set[int]:
        return {partition for partition, _ in self.read}

    def since(self, mark: int) -> dict[int, int]:
        """How far it has come in each partition of which it has read something since then."""
        return dict(self.read[mark:])


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
            thread.join(patient(60))


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
    cluster.kube("POST", CONSUMER_GROUPS, {**group, "spec": {"sessionTimeout": "6s"}})
    calls = GroupCalls([cluster.url(broker) for broker in range(3)])
    with members(cluster, 2) as (victim, survivor):
        with writing(cluster) as load:
            wait_for(lambda: len(victim.partitions) >= 2 and len(survivor.partitions) >= 2, "both read", 90)
            shares = wait_for(lambda: halves(calls), "each has its own", 90)
            marks = [len(each.read) for each in (victim, survivor)]
            wait_for(lambda: victim.since(marks[0]).keys() in shares, "it reads its own", 90)
            victim.kill()
            had, before = victim.since(marks[0]), len(survivor.read)
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
            had = wait_for(lambda: halves(calls), "each has its own", 90)
            cluster.broker(calls.get("/coordinator")["broker"]).kill()
            at, marks = load.written, [len(reader.read) for reader in readers]
            wait_for(lambda: goes_on(readers, marks, at), "both go on, in all of theirs", 90)
            wait_for(lambda: min(calls.offsets().values()) > at, "commits are taken again", 90)
            assert halves(calls) == had, "nobody had to give anything up"
            read = [reader.since(mark).keys() for reader, mark in zip(readers, marks, strict=True)]
            assert all(each in had for each in read), "nor read anything of another"
        wait_for(lambda: everything(load) <= {place for reader in readers for place in reader.read}, "all is read", 90)


def halves(calls: GroupCalls) -> list[set[int]] | None:
    """What each of two members has; None: it is not two of them with two partitions each."""
    found = calls.call("GET")
    members = found.json["members"] if found.status == 200 else []
    shares = [{n for listed in each["owned"] for n in listed["partitions"]} for each in members]
    return sorted(shares, key=min) if [len(each) for each in shares] == [2, 2] else None


def goes_on(readers: list[MemberProcess], marks: list[int], offset: int) -> bool:
    """Whether between them they have read beyond `offset` in each partition, since then."""
    read = [reader.since(mark) for reader, mark in zip(readers, marks, strict=True)]
    far = {partition for each in read for partition, last in each.items() if last > offset}
    return all(read) and len(far) == _PARTITIONS
