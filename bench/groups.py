"""What consumer groups take: many members that join at once, the end of a member, and commits."""

import asyncio
import time
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from bench import group_commits, group_moves
from bench.dev_cluster import BenchTopic, DevCluster, dev_cluster, wait
from bench.group_commits import BROKERS, Alone, Commits, Writes
from bench.group_moves import Moves
from headrace import AsyncConsumer, TopicPartition

MEMBERS = 50
_SHARE = 2
_CROWDED = BenchTopic("bench-crowded", partitions=_SHARE * MEMBERS)
_READ = BenchTopic("bench-read", partitions=20, replicas=BROKERS)
_WRITTEN = BenchTopic("bench-written", replicas=BROKERS)
"""As durable as commits: every replica, fsync."""
_OFFSETS = (_READ.partitions, 1)
"""In each commit."""
_GROUPS = "/v1/namespaces/default/groups"
_TIMEOUT_S = 60.0


class GroupAmounts(NamedTuple):
    joins: int
    moves: int
    groups: int
    """That commit at once."""
    quiet_s: float
    """Nobody writes to a ConsumerGroup for so long before writes are counted; lags are published each 10 s."""
    commit_s: float
    alone: int
    """Commits of one client, one after the other."""


@dataclass(frozen=True, slots=True)
class GroupFigures:
    joins: list[float]
    """Seconds from the first join of MEMBERS until each has its share and nobody waits for anything."""
    moves: Moves
    alone: Alone
    groups: int
    """That commit at once."""
    seconds: float
    """For which writes at rest and of each of `commits` were counted."""
    rest: Writes
    commits: list[Commits]


def measure(amounts: GroupAmounts) -> GroupFigures:
    with dev_cluster([_CROWDED, _READ, _WRITTEN], BROKERS) as cluster:
        server = ",".join(cluster.url(broker) for broker in range(BROKERS))
        return asyncio.run(_measure(cluster, server, amounts))


async def _measure(cluster: DevCluster, server: str, amounts: GroupAmounts) -> GroupFigures:
    # The first group of a cluster brings the offsets topic; not counted.
    joins = [await _join(cluster, server, f"bench-crowd-{number}") for number in range(amounts.joins + 1)][1:]
    async with group_commits.committers(server, _READ, amounts.groups) as members:
        # Meanwhile what their joining leaves to be published is.
        moves = await asyncio.to_thread(group_moves.measure, cluster, server, _READ, amounts.moves)
        alone = await asyncio.to_thread(group_commits.alone, server, _READ, _WRITTEN, amounts.alone)
        rest = await group_commits.rest(cluster, amounts.quiet_s, amounts.commit_s)
        commits = [
            await group_commits.commit_together(cluster, members, offsets, amounts.commit_s) for offsets in _OFFSETS
        ]
    return GroupFigures(joins, moves, alone, amounts.groups, amounts.commit_s, rest, commits)


async def _join(cluster: DevCluster, server: str, group: str) -> float:
    crowd = _Crowd()
    began = time.perf_counter()
    members = [asyncio.create_task(crowd.member(number, server, group)) for number in range(MEMBERS)]
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            await crowd.shared.wait()
            await asyncio.to_thread(wait, lambda: _is_stable(cluster, group), f"group {group} is stable")
        took_s = time.perf_counter() - began
        assert crowd.is_shared, "nothing was to change any more"
        return took_s
    finally:
        for member in members:
            member.cancel()
        await asyncio.gather(*members, return_exceptions=True)


def _is_stable(cluster: DevCluster, group: str) -> bool:
    """Whether its coordinator knows of every member, and expects nothing of any of them."""
    described = cluster.get(f"{_GROUPS}/{group}")
    return described["state"] == "Stable" and len(described["members"]) == MEMBERS


class _Crowd:
    """Members of one group, and who holds what."""

    def __init__(self) -> None:
        self._shares: list[set[int]] = [set() for _ in range(MEMBERS)]
        self.shared = asyncio.Event()
        """Set once everybody has had a share."""

    @property
    def is_shared(self) -> bool:
        """Whether every member has as much as any other, and no partition two members."""
        held = [partition for share in self._shares for partition in share]
        return len(held) == len(set(held)) == _CROWDED.partitions and {*map(len, self._shares)} == {_SHARE}

    async def member(self, number: int, server: str, group: str) -> None:
        async with AsyncConsumer(
            _CROWDED.name,
            server=server,
            group=group,
            on_assigned=partial(self._take, number),
            on_revoked=partial(self._drop, number),
        ) as consumer:
            async for _ in consumer:
                pass

    def _take(self, number: int, places: list[TopicPartition]) -> None:
        self._shares[number].update(place.partition for place in places)
        if self.is_shared:
            self.shared.set()

    def _drop(self, number: int, places: list[TopicPartition]) -> None:
        self._shares[number].difference_update(place.partition for place in places)
        if self.is_shared:
            self.shared.set()
