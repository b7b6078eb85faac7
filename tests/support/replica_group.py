"""Replicas of one partition in this process, on real logs, joined by streams that are function calls.

Who leads and who is in sync is what `elect` says; nobody claims or writes anything. A broker that is killed leaves its
log as it was written; it may be started again, in its next life.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from headrace.core.errors import BrokerUnreachableError, HeadraceError, StorageFailedError
from headrace.core.log.disk_quota import DiskLimits
from headrace.core.log.epochs import Fence
from headrace.core.log.segments import LogConfig
from headrace.core.records.raw import RawBatch, split_batches, split_replicated
from headrace.core.replication.events import AskEpochEnd, Fetch, Report
from headrace.core.replication.isr import Ends, InSyncRules
from headrace.core.replication.leadership import Contact
from headrace.core.replication.replica import Replica
from headrace.core.resources.partition_set import PartitionState
from headrace.core.resources.topic import TopicSpec
from headrace.core.types import (
    Acks,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    PartitionId,
    PartitionKey,
    Seat,
    TopicName,
    TopicUid,
)
from headrace_broker.broker_disk import BrokerDisk
from headrace_broker.clock import monotonic_ms
from headrace_broker.metrics import Metrics
from headrace_broker.partition.partition import Host, Partition
from headrace_broker.partition.queries import Place, ProduceQuery
from headrace_broker.partition.shell import PartitionShell
from headrace_broker.storage.data_directory import DataDirectory
from headrace_broker.storage.partition_store import PartitionDescription
from tests.support.batches import batch_of
from tests.support.partition_sets import partition_state, seat
from tests.support.waiting import eventually

KEY = PartitionKey(TopicUid("uid-1"), PartitionId(0))
PLACE = Place(TopicName("default", "flights"), PartitionId(0))
SPEC = TopicSpec.parse({"partitions": 1, "replicas": 3, "minInsyncReplicas": 1})
ALL = ProduceQuery(Acks.ALL, 30_000, Fence())
_READ_BYTES = 4_000


class Streams:
    """Of one broker, to whoever leads."""

    def __init__(self, group: "ReplicaGroup", me: Seat) -> None:
        self._group = group
        self._me = me
        self._stream: _Stream | None = None
        self._is_dead = False
        self.errors: list[HeadraceError] = []

    def die(self, partition: PartitionShell) -> None:
        """A sync that is under way may still come back: nobody hears of that."""
        self.unfollow(partition)
        self._is_dead = True

    def follow(self, partition: PartitionShell, leader: Seat, leader_epoch: LeaderEpoch) -> None:
        self.unfollow(partition)

        def reach() -> Partition:
            served = self._group.reach(self._me, leader)
            served.shell.check_serves(leader_epoch)
            return served

        self._stream = _Stream(partition, leader_epoch, reach, self.errors)

    def unfollow(self, partition: PartitionShell) -> None:
        if self._stream is not None:
            self._stream.task.cancel()
            self._stream = None

    def ask_epoch_end(self, partition: PartitionShell, leader_epoch: LeaderEpoch, epoch: LeaderEpoch) -> None:
        self._say(AskEpochEnd(leader_epoch, epoch))

    def fetch(self, partition: PartitionShell, leader_epoch: LeaderEpoch, offset: Offset) -> None:
        self._say(Fetch(leader_epoch, offset))

    def report(self, partition: PartitionShell, leader_epoch: LeaderEpoch, ends: Ends) -> None:
        self._say(Report(leader_epoch, ends))

    def _say(self, what: AskEpochEnd | Fetch | Report) -> None:
        if not self._is_dead:
            assert self._stream is not None, "somebody is followed"
            self._stream.say(what)


class _Stream:
    """A task that asks, reads and reports, and begins again after any error."""

    def __init__(
        self,
        partition: PartitionShell,
        leader_epoch: LeaderEpoch,
        reach: Callable[[], Partition],
        errors: list[HeadraceError],
    ) -> None:
        self._partition = partition
        self._epoch = leader_epoch
        self._reach = reach
        self._errors = errors
        self._to_say: deque[AskEpochEnd | Fetch | Report] = deque()
        self._woken = asyncio.Event()
        self._position: Offset | None = None
        self._told: tuple[Offset, Offset] | None = None
        self.task = asyncio.create_task(self._run())

    def say(self, what: AskEpochEnd | Fetch | Report) -> None:
        self._to_say.append(what)
        self._woken.set()

    async def _run(self) -> None:
        while True:
            self._to_say.clear()
            self._position = self._told = None
            try:
                await self._follow(self._reach())
            except HeadraceError as error:
                self._errors.append(error)
            self._partition.stream_lost()
            await asyncio.sleep(0.005)

    async def _follow(self, served: Partition) -> None:
        wake = self._woken.set
        served.shell.follow_appends(wake)
        try:
            self._partition.stream_opened(self._epoch)
            while True:
                self._woken.clear()
                self._pass_on(served)
                if self._position is not None:
                    await self._push(served, self._position)
                await asyncio.sleep(0)  # Where it was cancelled meanwhile, it ends here.
                await self._woken.wait()
                self._reach()
        finally:
            served.shell.unfollow(wake)

    def _pass_on(self, served: Partition) -> None:
        while self._to_say:
            match self._to_say.popleft():
                case AskEpochEnd(leader_epoch, epoch):
                    self._partition.epoch_answered(leader_epoch, served.shell.epoch_end(leader_epoch, epoch))
                case Fetch(_, offset):
                    self._position = offset
                case Report(leader_epoch, ends):
                    served.shell.follower_reported(self._partition.replica.me, leader_epoch, ends)

    async def _push(self, served: Partition, position: Offset) -> None:
        log = served.log
        start = max(position, log.log_start_offset)
        sent = [bytes(each) for each in await log.read(start, max_bytes=_READ_BYTES, up_to=log.log_end_offset)]
        news = (served.high_watermark, log.log_start_offset)
        if not sent and news == self._told:
            return  # Whatever is received is answered by a report.
        self._told = news
        self._partition.received(self._epoch, sent, *news)
        self._position = max(position, self._partition.log.log_end_offset)
        self._woken.set()


@dataclass
class Member:
    seat: Seat
    data: DataDirectory
    partition: Partition
    metrics: Metrics
    streams: Streams
    failures: list[str]


@dataclass
class ReplicaGroup:
    path: Path
    spec: TopicSpec = SPEC
    state: PartitionState | None = None
    members: dict[int, Member] = field(default_factory=dict)
    cut_off: set[int] = field(default_factory=set)
    """Brokers that reach no other, and that none reaches."""
    deaf: set[int] = field(default_factory=set)
    """Brokers that the API server does not reach."""
    lives: dict[int, int] = field(default_factory=dict)

    def __getitem__(self, broker: int) -> Partition:
        return self.members[broker].partition

    def seat(self, broker: int) -> Seat:
        return seat(broker, self.lives.get(broker, 1))

    def start(self, broker: int) -> Partition:
        """In its first life, or the next one."""
        self.lives[broker] = self.lives.get(broker, 0) + 1
        me, failures = self.seat(broker), list[str]()
        data = DataDirectory.open(self.path / f"broker-{broker}")
        config, description = LogConfig.of_topic(self.spec), PartitionDescription(PLACE.topic, KEY, SPEC.to_object())
        log = data.open_log(description, config, now_ms=0)
        metrics, streams = Metrics(), Streams(self, me)
        disk = BrokerDisk(data.path, DiskLimits(), metrics, failures.append)
        host = Host(metrics, disk, streams, lambda: Contact(monotonic_ms(), monotonic_ms()))
        rules, known = InSyncRules.of_topic(self.spec), log.high_watermark_checkpoint
        replica = Replica(me, rules, log, durable_end=log.durable_end, last_epoch=log.last_epoch, high_watermark=known)
        partition = Partition(KEY, PLACE, log, replica, host)
        partition.configure(self.spec)
        self.members[broker] = Member(me, data, partition, metrics, streams, failures)
        if self.state is not None:
            partition.apply(self.state)
        return partition

    def kill(self, broker: int) -> None:
        """Nothing more of it happens; what is written stays."""
        member = self.members.pop(broker)
        member.streams.die(member.partition.shell)
        member.data.close(clean=False)

    def elect(self, broker: int | None, isr: Iterable[int] = (0, 1, 2)) -> None:
        """In the next epoch; whoever is not deaf hears of it."""
        state = self.state or partition_state(replicas=(BrokerId(0), BrokerId(1), BrokerId(2)))
        epoch = LeaderEpoch(state.leader_epoch + 1)
        self.tell(replace(state, leader=None if broker is None else self.seat(broker), leader_epoch=epoch), isr)

    def shrink(self, *isr: int) -> None:
        """Or grow: as a leader whose write has landed."""
        assert self.state is not None
        self.tell(self.state, isr)

    def tell(self, state: PartitionState, isr: Iterable[int]) -> None:
        epoch = PartitionEpoch(state.partition_epoch + 1)
        self.state = replace(state, isr=tuple(map(self.seat, isr)), partition_epoch=epoch)
        for broker, member in self.members.items():
            if broker not in self.deaf:
                member.partition.apply(self.state)

    def reach(self, who: Seat, leader: Seat) -> Partition:
        """Raises BrokerUnreachableError."""
        member = self.members.get(leader.broker)
        if member is None or member.seat != leader or {who.broker, leader.broker} & self.cut_off:
            raise BrokerUnreachableError(f"{who} does not reach {leader}")
        return member.partition

    def heal(self) -> None:
        """Everybody reaches everybody, and hears of the state."""
        self.cut_off.clear()
        self.deaf.clear()
        for member in self.members.values():
            if self.state is not None:
                member.partition.apply(self.state)

    async def agree(self) -> None:
        """Until all logs hold the same, all of it committed."""

        def agrees() -> bool:
            parts = [member.partition for member in self.members.values()]
            starts = {part.log.log_start_offset for part in parts}
            ends = {end for part in parts for end in (part.log.log_end_offset, part.high_watermark)}
            return len(starts) == len(ends) == 1

        await eventually(agrees, "equal logs", 10)
        contents = {bytes(await content(member.partition)) for member in self.members.values()}
        assert len(contents) == 1, "the same bytes"

    async def close(self) -> None:
        for member in self.members.values():
            with suppress(StorageFailedError):  # a test may have broken the disk
                await member.partition.close("the test is over")
            member.data.close(clean=False)


@asynccontextmanager
async def replica_group(path: Path, brokers: Iterable[int] = (0, 1, 2), **spec: object) -> AsyncIterator[ReplicaGroup]:
    """None of them leads yet."""
    group = ReplicaGroup(path, replace(SPEC, **spec))  # type: ignore[arg-type]
    try:
        for broker in brokers:
            group.start(broker)
        yield group
    finally:
        await group.close()


async def produce(partition: Partition, *values: bytes, query: ProduceQuery = ALL) -> Offset:
    """One batch; returns its first offset."""
    return await produce_batches(partition, *split_batches([batch_of(*values)], batch_bytes_max=1 << 20), query=query)


async def produce_batches(partition: Partition, *batches: RawBatch, query: ProduceQuery = ALL) -> Offset:
    written, _ = await partition.produce(list(batches), query)
    return written.first_offset


async def content(partition: Partition) -> bytes:
    """All that the log holds."""
    log, found = partition.log, b""
    position = log.log_start_offset
    while position < log.log_end_offset:
        chunks = await log.read(position, max_bytes=1 << 20, up_to=log.log_end_offset)
        batches = split_replicated([bytes(chunk) for chunk in chunks])
        found += b"".join(b"".join(batch.buffers) for batch in batches)
        position = batches[-1].header.next_offset
    return found
