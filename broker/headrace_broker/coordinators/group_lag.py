"""The lag of the groups that are coordinated here: their offsets against what leaders say of their records.

Every GROUP_LAG_INTERVAL_MS all partitions of all groups that have offsets or members are asked for, each once however
many groups read it, in one request to each leader (some more where they are many); groups that are new are asked for a
bit earlier. If a leader does not answer in time, or is not sure, the lag is not known: the lag of a topic is a sum of
all its partitions or nothing. Others have the event loop after every LOOK_ITEMS_MAX partitions. One per process, run by
one task, read by `consumer_groups` and by scrapes. Bounded by the groups that are coordinated here and by
GROUP_LAG_PARTITIONS_MAX.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from headrace.core.errors import HeadraceError, NotReadyError
from headrace.core.groups.assignment import partitions_of
from headrace.core.groups.group import Group
from headrace.core.groups.identity import GroupName, TopicShape
from headrace.core.groups.lag import Watermarks, parse_watermarks, partition_lag, topic_lag, watermarks_request_object
from headrace.core.groups.status import topics_of
from headrace.core.limits import LOOK_ITEMS_MAX, WATERMARKS_ASKED_MAX, WATERMARKS_TIMEOUT_MS
from headrace.core.log.epochs import Fence
from headrace.core.types import BrokerId, PartitionKey, TopicUid
from headrace_broker.clock import monotonic_ms
from headrace_broker.cluster.locator import OpenPartitions
from headrace_broker.cluster.view import ClusterView
from headrace_broker.coordinators.group_coordinator import CoordinatedGroups
from headrace_broker.http.proxy import Proxy
from headrace_broker.partition.partition import Partition

GROUP_LAG_INTERVAL_MS = 5_000
"""The interval in which a coordinator asks leaders how far its groups are behind ..."""
GROUP_LAG_INTERVAL_MS_MIN = 1_000
"""... and the shortest time before it asks for groups of which it has never asked."""
GROUP_LAG_PARTITIONS_MAX = 1 << 16
"""The partitions that one broker asks about each time: the lag of groups that have others is not known."""


_T = TypeVar("_T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SeenLag:
    """The lag of one group, when it was last looked at; None where a value is not known."""

    topics: Mapping[TopicUid, int | None] = field(default_factory=dict)
    partitions: Mapping[PartitionKey, int | None] = field(default_factory=dict)
    names: Mapping[TopicUid, str] = field(default_factory=dict)


def known_here(partitions: OpenPartitions, asked: Iterable[PartitionKey]) -> dict[PartitionKey, Watermarks]:
    """Return the watermarks of the partitions that this broker leads, as far as it knows the latest."""
    found = {}
    for key in asked:
        partition = partitions.find(key)
        if partition is not None and _is_sure(partition):
            found[key] = Watermarks(partition.log.log_start_offset, partition.high_watermark)
    return found


def _is_sure(partition: Partition) -> bool:
    label = str(partition.place)
    try:
        partition.replica.check_leader(label, Fence())
        partition.replica.check_latest(label, partition.contact)
    except HeadraceError:
        return False
    return True


class GroupLags:
    def __init__(
        self, me: BrokerId, view: ClusterView, partitions: OpenPartitions, proxy: Proxy, groups: CoordinatedGroups
    ) -> None:
        self._me = me
        self._view = view
        self._partitions = partitions
        self._proxy = proxy
        self._groups = groups
        self._seen: dict[GroupName, SeenLag] = {}
        self._news = asyncio.Event()
        """The event that there may be a group of which nothing is known."""
        self.on_change: Callable[[GroupName], None] = lambda _: None
        """The function that is called when the lag of one of its topics has changed."""

    def of(self, group: GroupName) -> SeenLag | None:
        """Return the lag that was last seen; None where nobody has looked yet."""
        return self._seen.get(group)

    def look_soon(self) -> None:
        self._news.set()

    def forget(self, groups: Iterable[GroupName]) -> None:
        for group in groups:
            self._seen.pop(group, None)

    async def run(self) -> None:
        """Ask again and again, until this is cancelled."""
        due_ms = 0
        while True:
            self._news.clear()
            groups = self._groups.all()
            if monotonic_ms() >= due_ms:
                due_ms = monotonic_ms() + GROUP_LAG_INTERVAL_MS
            else:
                groups = [group for group in groups if group.image.name not in self._seen]
            try:
                await self._look(groups)
            except Exception:  # a mistake of ours must not end this
                _log.exception("the lag of %d groups is not known", len(groups))
            await asyncio.sleep(GROUP_LAG_INTERVAL_MS_MIN / 1000)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0, due_ms - monotonic_ms()) / 1000):
                    await self._news.wait()

    async def _look(self, groups: Collection[Group]) -> None:
        wanted: dict[PartitionKey, None] = {}
        for group in groups:
            async for some in _in_turns(_partitions_of(self._shapes(group))):
                wanted |= dict.fromkeys(islice(some, GROUP_LAG_PARTITIONS_MAX - len(wanted)))
            if len(wanted) >= GROUP_LAG_PARTITIONS_MAX:
                _log.warning("groups read %d partitions or more: not every lag is known", GROUP_LAG_PARTITIONS_MAX)
                break
        known = await self._ask_leaders(wanted)
        for group in groups:
            await self._note(group, known)

    def _shapes(self, group: Group) -> dict[str, TopicShape]:
        return topics_of(group.image, self._groups.topics(group.image.name.namespace))

    async def _note(self, group: Group, known: Mapping[PartitionKey, Watermarks]) -> None:
        name, shapes = group.image.name, self._shapes(group)
        behind: dict[PartitionKey, int | None] = {}
        async for some in _in_turns(_partitions_of(shapes)):
            behind |= {each: partition_lag(group.image, each, known.get(each)) for each in some}
        topics = {shape.uid: topic_lag(shape, behind) for shape in shapes.values()}
        if self._groups.find(name) is not group:
            return  # it has gone meanwhile
        before = self._seen.get(name)
        self._seen[name] = SeenLag(topics, behind, {shape.uid: topic for topic, shape in shapes.items()})
        if before is None or before.topics != topics:
            self.on_change(name)

    async def _ask_leaders(self, wanted: Iterable[PartitionKey]) -> dict[PartitionKey, Watermarks]:
        by_leader: dict[BrokerId, list[PartitionKey]] = {}
        async for some in _in_turns(wanted):
            for key in some:
                state = self._view.states.get(key)
                if state is not None and state.leader is not None:
                    by_leader.setdefault(state.leader.broker, []).append(key)
        found: dict[PartitionKey, Watermarks] = {}
        async for some in _in_turns(by_leader.pop(self._me, ())):
            found |= known_here(self._partitions, some)
        for answered in await asyncio.gather(*(self._ask(broker, keys) for broker, keys in by_leader.items())):
            found |= answered
        return found

    async def _ask(self, broker: BrokerId, keys: Sequence[PartitionKey]) -> dict[PartitionKey, Watermarks]:
        """Return the watermarks that a broker tells; less where it does not answer."""
        found: dict[PartitionKey, Watermarks] = {}
        leader = _Leader(broker, self._view.url_of(broker))
        try:
            for begin in range(0, len(keys), WATERMARKS_ASKED_MAX):
                async with asyncio.timeout(WATERMARKS_TIMEOUT_MS / 1000):
                    found |= await self._ask_once(leader, keys[begin : begin + WATERMARKS_ASKED_MAX])
        except (HeadraceError, TimeoutError, ValueError) as error:
            _log.info("broker %d does not say how far its partitions reach: %r", broker, error)
        return found

    async def _ask_once(self, leader: "_Leader", keys: Iterable[PartitionKey]) -> dict[PartitionKey, Watermarks]:
        body = json.dumps(watermarks_request_object(keys)).encode()
        answer = await self._proxy.send(
            leader,
            "POST",
            f"/v1/brokers/{leader.broker}/watermarks",
            headers={"content-type": "application/json"},
            body=(body,),
            timeout_ms=WATERMARKS_TIMEOUT_MS,
        )
        if answer.status != 200:
            raise leader.error(f": HTTP {answer.status} {answer.text}")
        return parse_watermarks(json.loads(answer.text or "{}"))


def _partitions_of(shapes: Mapping[str, TopicShape]) -> Iterable[PartitionKey]:
    return (partition for shape in shapes.values() for partition in partitions_of(shape))


async def _in_turns(items: Iterable[_T]) -> AsyncIterator[list[_T]]:
    """Yield so many at a time; others have the event loop in between."""
    left = iter(items)
    while some := [*islice(left, LOOK_ITEMS_MAX)]:
        yield some
        await asyncio.sleep(0)


@dataclass(frozen=True, slots=True)
class _Leader:
    broker: BrokerId
    url: str

    def error(self, why: str) -> HeadraceError:
        return NotReadyError(f"only broker {self.broker} knows{why}")
