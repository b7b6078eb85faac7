"""What commits take, and what they cost the Kubernetes API.

Committers are members of the SDK, each the only one of its group, in one event loop: their coordinators are spread over
all brokers. Writes to ConsumerGroups are counted by brokers (`headrace_broker_group_writes`), all writes of everybody,
Leases included, by the resource version of the API, which rises with each.
"""

import asyncio
import os
import re
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import NamedTuple

from bench.dev_cluster import BenchTopic, DevCluster
from bench.peers.processes import Server
from headrace import AsyncConsumer, Consumer, Producer, TopicPartition

BROKERS = 3
_TOPICS = "/apis/headrace.io/v1alpha1/namespaces/default/topics"
_WRITES = re.compile(r"^headrace_broker_group_writes_total\{[^}]*\} (\S+)$", re.MULTILINE)
_POLL_S = 0.25
_TIMEOUT_S = 60.0


class Writes(NamedTuple):
    groups: int
    """To ConsumerGroups."""
    all: int


@dataclass(frozen=True, slots=True)
class Commits:
    """Of all groups together, as fast as they get."""

    offsets: int
    """In each of them."""
    per_s: float
    times_s: list[float]
    cpu_s: float
    """Of all processes together, clients included, for each of them."""
    writes: Writes
    """Meanwhile."""


@dataclass(frozen=True, slots=True)
class Alone:
    """Seconds of each request of one client, one after the other."""

    commits: list[float]
    """Of one offset."""
    records: list[float]
    """To a topic that is as durable, for comparison; sent in turns with the commits."""


class _Committer:
    def __init__(self, consumer: AsyncConsumer, partitions: int) -> None:
        self._consumer = consumer
        self._partitions = partitions
        self._places: list[TopicPartition] = []

    async def join(self) -> None:
        """Until it has all partitions, and has taken them up: there is nothing to read."""
        async with asyncio.timeout(_TIMEOUT_S):
            while len(self._places) < self._partitions:
                async for _ in self._consumer.records(follow=False):
                    pass
                self._places = sorted(self._consumer.assignment())
        await self._consumer.commit(dict.fromkeys(self._places, 0))

    async def commit_until(self, end: float, offsets: int) -> list[float]:
        times = []
        places = self._places[:offsets]
        while (began := time.perf_counter()) < end:
            await self._consumer.commit(dict.fromkeys(places, 0))
            times.append(time.perf_counter() - began)
        return times


@asynccontextmanager
async def committers(server: str, topic: BenchTopic, groups: int) -> AsyncIterator[list[_Committer]]:
    """Each has every partition of the topic, and has committed."""
    async with AsyncExitStack() as stack:
        found = []
        for number in range(groups):
            consumer = AsyncConsumer(topic.name, server=server, group=f"bench-busy-{number}", auto_commit=False)
            found.append(_Committer(await stack.enter_async_context(consumer), topic.partitions))
        await asyncio.gather(*(committer.join() for committer in found))
        yield found


async def commit_together(cluster: DevCluster, members: Sequence[_Committer], offsets: int, seconds: float) -> Commits:
    """`offsets` of each member in each commit."""
    processes = [Server(pid) for pid in (*cluster.pids().values(), os.getpid())]
    before, cpu_s = writes(cluster), -_cpu_s(processes)
    end = time.perf_counter() + seconds
    times = await asyncio.gather(*(member.commit_until(end, offsets) for member in members))
    cpu_s += _cpu_s(processes)
    times_s = [*chain.from_iterable(times)]
    count = len(times_s)
    return Commits(offsets, count / seconds, times_s, cpu_s / count, _between(before, writes(cluster)))


def _cpu_s(processes: Iterable[Server]) -> float:
    return sum(process.cpu_s() for process in processes)


async def rest(cluster: DevCluster, quiet_s: float, seconds: float) -> Writes:
    """Writes in so many seconds without a commit, once nobody has written to ConsumerGroups for `quiet_s`."""
    since, known = time.perf_counter(), writes(cluster).groups
    deadline = since + _TIMEOUT_S
    while (now := time.perf_counter()) < since + quiet_s:
        if now > deadline:
            raise RuntimeError(f"ConsumerGroups are written and written, for {_TIMEOUT_S:g} s without a commit")
        await asyncio.sleep(_POLL_S)
        if (found := writes(cluster).groups) != known:
            since, known = time.perf_counter(), found
    before = writes(cluster)
    await asyncio.sleep(seconds)
    return _between(before, writes(cluster))


def writes(cluster: DevCluster) -> Writes:
    """Until now."""
    to_groups = 0.0
    for broker in range(BROKERS):
        with urllib.request.urlopen(f"{cluster.url(broker)}/metrics", timeout=_TIMEOUT_S) as response:
            to_groups += sum(map(float, _WRITES.findall(response.read().decode())))
    version = cluster.kube("GET", _TOPICS)["metadata"]["resourceVersion"]
    return Writes(int(to_groups), int(version))


def _between(before: Writes, after: Writes) -> Writes:
    return Writes(after.groups - before.groups, after.all - before.all)


def alone(server: str, read: BenchTopic, written: BenchTopic, count: int) -> Alone:
    found = Alone([], [])
    with (
        Consumer(read.name, group="bench-alone", server=server, auto_commit=False) as consumer,
        Producer(server, linger_ms=0) as producer,
    ):
        for _ in consumer.records(follow=False):  # joins, and takes its partitions up
            pass
        place = consumer.assignment()[0]
        consumer.commit({place: 0})  # knows its ways, as one that has been at work
        producer.send(written.name, b"x").result()
        for offset in range(count):
            found.commits.append(_timed(partial(consumer.commit, {place: offset})))
            found.records.append(_timed(lambda: producer.send(written.name, b"x").result()))
    return found


def _timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began
