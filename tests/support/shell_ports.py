"""The ports of a partition's shell, for tests: all that it does is written down, and ends when a test says so."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.core.errors import HeadraceError
from headrace.core.log.epochs import EpochStart, Fence, LeaderEpochs
from headrace.core.replication.events import StartAnew, Synced, Truncate, WriteFailed
from headrace.core.replication.isr import Ends, InSyncRules
from headrace.core.replication.leadership import Contact
from headrace.core.replication.replica import Replica
from headrace.core.resources.partition_set import PartitionState
from headrace.core.resources.topic import Durability
from headrace.core.types import Acks, BrokerId, LeaderEpoch, Offset, PartitionEpoch, Seat
from headrace_broker.partition.queries import ProduceQuery
from headrace_broker.partition.shell import CutDone, PartitionShell, Ports, SyncDone
from tests.support.partition_sets import partition_state, seat
from tests.support.partitions import KEY, PLACE

ME, OTHER = seat(0), seat(1)
ALL, LEADER, NONE = (ProduceQuery(acks, 1_000, Fence()) for acks in (Acks.ALL, Acks.LEADER, Acks.NONE))


@dataclass
class WrittenLog:
    """The `LogPort`: offsets and epochs alone. What was begun waits in `syncs` and `cuts`."""

    told: list[str]
    log_end_offset: Offset = field(default_factory=lambda: Offset(0))
    log_start_offset: Offset = field(default_factory=lambda: Offset(0))
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    syncs: list[tuple[Offset, SyncDone]] = field(default_factory=list)
    cuts: list[tuple[Truncate | StartAnew, CutDone]] = field(default_factory=list)
    deletions: list[Callable[[WriteFailed], None]] = field(default_factory=list)
    failure: HeadraceError | None = None
    """Raised by the next append."""

    def write(self, records: int, epoch: int) -> int:
        if self.failure is not None:
            raise self.failure
        self.told.append(f"append {records}")
        self.epochs.assign(LeaderEpoch(epoch), self.log_end_offset)
        self.log_end_offset = Offset(self.log_end_offset + records)
        return records

    def taken(self, data: Sequence[Any]) -> tuple[Offset | None, Callable[[], int]]:
        """A leader sends (offset, epoch, records)."""
        if not data:
            return None, lambda: 0
        ((base_offset, epoch, records),) = data
        return Offset(base_offset), lambda: self.write(records, epoch)

    def sync(self, done: SyncDone) -> None:
        self.told.append(f"sync {self.log_end_offset}")
        self.syncs.append((self.log_end_offset, done))

    def cut(self, effect: Truncate | StartAnew, done: CutDone) -> None:
        self.told.append(f"cut {effect.end if isinstance(effect, Truncate) else effect.offset}")
        self.cuts.append((effect, done))

    def delete_below(self, offset: Offset, failed: Callable[[WriteFailed], None]) -> None:
        self.told.append(f"delete {offset}")
        self.deletions.append(failed)

    def failed(self, reason: str) -> None:
        self.told.append(f"failed: {reason}")


@dataclass
class WrittenStreams:
    told: list[str]

    def follow(self, partition: PartitionShell, leader: Seat, leader_epoch: LeaderEpoch) -> None:
        self.told.append(f"follow {leader} in {leader_epoch}")

    def unfollow(self, partition: PartitionShell) -> None:
        self.told.append("unfollow")

    def ask_epoch_end(self, partition: PartitionShell, leader_epoch: LeaderEpoch, epoch: LeaderEpoch) -> None:
        self.told.append(f"ask {epoch}")

    def fetch(self, partition: PartitionShell, leader_epoch: LeaderEpoch, offset: Offset) -> None:
        self.told.append(f"fetch {offset}")

    def report(self, partition: PartitionShell, leader_epoch: LeaderEpoch, ends: Ends) -> None:
        self.told.append(f"report {ends.log_end} {ends.durable_end}")


@dataclass
class WrittenClock:
    at_ms: int = 0
    calls: list[Callable[[], None]] = field(default_factory=list)

    def now_ms(self) -> int:
        return self.at_ms

    def contact(self) -> Contact:
        return Contact(self.at_ms, self.at_ms)

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def pass_time(self, ms: int) -> None:
        self.at_ms += ms
        calls, self.calls = self.calls, []
        for call in calls:
            call()


class ShellBench:
    """A shell on such ports; the replicas are this broker's and one other."""

    def __init__(self, *epochs: tuple[int, int], end: int = 0, durability: Durability = Durability.FSYNC) -> None:
        self.told: list[str] = []
        starts = (EpochStart(LeaderEpoch(epoch), Offset(offset)) for epoch, offset in epochs)
        self.log = WrittenLog(self.told, Offset(end), epochs=LeaderEpochs(starts))
        self.clock = WrittenClock()
        self.answers: list[tuple[str, HeadraceError | None]] = []
        replica = Replica(
            ME, InSyncRules(durability, 1), self.log, durable_end=Offset(end), last_epoch=self.log.epochs.latest
        )
        self.shell = PartitionShell(KEY, PLACE, replica, Ports(self.log, WrittenStreams(self.told), self.clock))
        self._state = partition_state(replicas=(BrokerId(0), BrokerId(1)), isr=(ME,))

    def elect(self, leader: Seat | None, isr: tuple[Seat, ...] = (ME,)) -> None:
        """In the next epoch."""
        state = self._state
        self._tell(replace(state, leader=leader, leader_epoch=LeaderEpoch(state.leader_epoch + 1), isr=isr))

    def _tell(self, state: PartitionState) -> None:
        self._state = replace(state, partition_epoch=PartitionEpoch(state.partition_epoch + 1))
        self.shell.apply(self._state)

    @property
    def epoch(self) -> LeaderEpoch:
        return self._state.leader_epoch

    def produce(self, name: str, query: ProduceQuery = ALL, records: int = 1) -> None:
        def answered(error: HeadraceError | None) -> None:
            self.told.append(f"answer {name}{f': {error.code}' if error else ''}")
            self.answers.append((name, error))

        def write(epoch: LeaderEpoch) -> tuple[None, int, Offset]:
            return None, self.log.write(records, epoch) if records else 0, self.log.log_end_offset

        self.shell.append(query, write, answered)

    def synced(self) -> None:
        """The oldest sync is done."""
        end, done = self.log.syncs.pop(0)
        done(Synced(end))

    def take_told(self) -> list[str]:
        """What was done since it was asked last."""
        taken = self.told[:]
        self.told.clear()
        return taken
