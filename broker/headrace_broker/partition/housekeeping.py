"""The work that a broker does by itself, now and then, on the partitions that it holds: retention, and verification.

`Housekeeping` cleans each open partition (`Cleaner.expire`) once an interval, one after the other, so that a thousand
of them are spread over it, and more often while the disk is full; and at the next tick where a partition says that
something but the time has changed (`wants_cleaning`): a segment was closed, its topic has another retention. Beside it,
high watermarks are written to disk, and orphans looked for. A partition that cannot be cleaned is logged and tried
again an interval later; the others go on.

`Verification` asks: does this broker's disk still have what was written, and what becomes of a log where it has not?

    segments are read through ── damage ──> told: log, Event, metric
                                                     └── others have all of it (`others_have_it`)
                                                           ──> this life ends as every stop does, and the next begins
                                                     logs are closed ── others still have all of it
                                                           ──> the next life cuts the log there and fetches the rest

Every open partition is read through after the start, one after the other and slowly; then once an interval. That takes
hours on a broker that holds much, so another task looks after partitions in doubt meanwhile: a partition in which
damage was met is read at once, and faster; a damaged one is handed over within a moment. If nobody else has the damaged
records, everything stays as it is, and what is before and after the damage can be read.

Both run from the first partition's opening to the drain, in tasks of the process; one of each per life.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Gauge

from headrace.core.errors import HeadraceError
from headrace.core.replication.draining import others_have_it
from headrace.core.resources.partition_set import PartitionState
from headrace.core.types import Incarnation, PartitionKey, Seat, TopicName, TopicUid
from headrace_broker.broker_disk import BrokerDisk
from headrace_broker.clock import monotonic_ms
from headrace_broker.partition.actions import PartitionActions
from headrace_broker.partition.holdings import Holdings
from headrace_broker.partition.partition import Partition
from headrace_broker.storage.log_verification import Damage, Pace
from headrace_broker.storage.partition_store import PartitionStore

VERIFY_BYTES_PER_S = 16 << 20
VERIFY_DOUBTS_BYTES_PER_S = 256 << 20
"""The rate for a log in which damage was found."""
VERIFY_INTERVAL_MS = 7 * 24 * 3_600_000
"""Each partition's closed segments are read through after each start, this often, and when somebody found damage."""
VERIFY_TICK_MS = 2_000
MENDING_INTERVAL_MS = 60_000
"""Each life but the first that one process ends because a log is damaged lasts this long at least."""
HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS = 5_000
"""How far the checkpoint on disk may be behind: recovery tells with it whether committed records are missing."""
ORPHAN_PURGE_INTERVAL_MS = 3_600_000
HOUSEKEEPING_TICK_MS = 1_000
"""How soon "at once" is."""
HOUSEKEEPING_FULL_INTERVAL_MS = 5_000
"""The interval while the disk is full."""


_log = logging.getLogger(__name__)
Warn = Callable[[TopicName, TopicUid, str, str], None]
"""Tell the owner of a Topic: reason, message."""


class Housekeeping:
    def __init__(self, holdings: Holdings, actions: PartitionActions, disk: BrokerDisk, interval_ms: int) -> None:
        self._holdings = holdings
        self._actions = actions
        self._disk = disk
        self._interval_ms = interval_ms
        self._cleaned_ms: dict[PartitionKey, int] = {}
        """The time at which each open partition was cleaned last."""

    async def checkpoint(self) -> None:
        """Write high watermarks to disk, and look at the orphans, for ever."""
        since_look_ms = ORPHAN_PURGE_INTERVAL_MS
        while True:
            if since_look_ms >= ORPHAN_PURGE_INTERVAL_MS:
                await self._actions.find_overdue()
                since_look_ms = 0
            await asyncio.sleep(HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS / 1000)
            since_look_ms += HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS
            await self._holdings.checkpoint()

    async def clean(self) -> None:
        """Delete what retention is over for, for ever."""
        while True:
            await asyncio.sleep(HOUSEKEEPING_TICK_MS / 1000)
            await self._clean_all()

    async def _clean_all(self) -> None:
        """Clean each partition that is due, in a frame of its own: one that waits for long would keep the last one
        and its files alive."""
        for partition in self._due(monotonic_ms()):
            await _expire(partition)

    def _due(self, now_ms: int) -> list[Partition]:
        known, interval_ms = self._cleaned_ms, self._interval_ms
        partitions = self._holdings.open_partitions()
        # Whoever is new has its turn at a moment of its own: all are opened at once, when the broker starts.
        self._cleaned_ms = {
            each.key: known.get(each.key) or now_ms - random.randint(0, interval_ms) for each in partitions
        }
        if self._disk.is_full:
            interval_ms = min(interval_ms, HOUSEKEEPING_FULL_INTERVAL_MS)
        due = [
            each
            for each in partitions
            if each.cleaner.wants_cleaning or now_ms - self._cleaned_ms[each.key] >= interval_ms
        ]
        for each in due:
            self._cleaned_ms[each.key] = now_ms
        return due


async def _expire(partition: Partition) -> None:
    try:
        await partition.cleaner.expire()
    except HeadraceError as error:
        _log.warning("%s: not cleaned: %s", partition.place, error)
    except Exception:  # a mistake of our own with one partition must not end the others' housekeeping
        _log.exception("%s: not cleaned", partition.place)


class VerifiedPartitions(Protocol):
    """The partitions that are open here."""

    def open_partitions(self) -> list[Partition]: ...
    def find(self, key: PartitionKey) -> Partition | None: ...


class KnownCluster(Protocol):
    """The part of the cluster view that verification uses."""

    @property
    def states(self) -> Mapping[PartitionKey, PartitionState]: ...
    def ready_seats(self, now_ms: int) -> Collection[Seat]: ...


def _paced_at(bytes_per_s: int) -> Pace:
    async def pace(read_bytes: int) -> None:
        await asyncio.sleep(read_bytes / bytes_per_s)

    return pace


_SLOWLY, _FAST = _paced_at(VERIFY_BYTES_PER_S), _paced_at(VERIFY_DOUBTS_BYTES_PER_S)


class Verification:
    def __init__(
        self,
        me: Seat,
        holdings: VerifiedPartitions,
        view: KnownCluster,
        warn: Warn,
        registry: CollectorRegistry,
        *,
        pace: Pace = _SLOWLY,
    ) -> None:
        """`pace`: for what nobody has doubts about."""
        self._pace = pace
        self._me = me
        self._holdings = holdings
        self._view = view
        self._warn = warn
        self._damaged: dict[PartitionKey, Damage] = {}
        self._to_cut: dict[PartitionKey, Damage] = {}
        self._patient_until_ms = 0
        self._verified_ms: dict[PartitionKey, int] = {}
        Gauge(
            "headrace_broker_damaged_partitions",
            "Partitions of which this broker's disk has not kept what was written.",
            registry=registry,
        ).set_function(lambda: len(self._damaged))

    def be_patient(self) -> None:
        """A life has ended for damage already: this one lasts for a while, whatever it finds."""
        self._patient_until_ms = monotonic_ms() + MENDING_INTERVAL_MS

    def work(self, hand_over: Callable[[str], None]) -> list[Coroutine[Any, Any, None]]:
        """Each to be run as a task until it is cancelled.

        `hand_over` is told once others can do without a damaged log here: why this life is to end.
        """
        return [_repeat(self.read_through), _repeat(lambda: self.look(hand_over))]

    async def read_through(self) -> None:
        """Read what is due, one partition after the other."""
        # By key: a log that is closed meanwhile must not be held for hours.
        for key in [each.key for each in self._holdings.open_partitions() if self._is_due(each)]:
            partition = self._holdings.find(key)
            if partition is not None and self._is_due(partition):
                await self._finds_damage(partition, self._pace)

    async def look(self, hand_over: Callable[[str], None]) -> None:
        """At what somebody has come upon damage in, and whether others can do without what is damaged."""
        self._forget()
        await self._maybe_hand_over(hand_over)
        for key in [each.key for each in self._holdings.open_partitions() if self._is_in_doubt(each)]:
            partition = self._holdings.find(key)
            if partition is not None:
                await self._look_into(partition)
                await self._maybe_hand_over(hand_over)

    def end(self) -> None:
        """This life is over but for its logs: which of them the next one cuts is decided now."""
        self._to_cut = {key: damage for key, damage in self._damaged.items() if self._can_do_without(key)}

    async def cut(self, store: PartitionStore) -> None:
        """The logs are closed: have those cut that others have whole, by the next start. Raises StorageFailedError."""
        later = Incarnation(self._me.incarnation + 1)
        for key, damage in self._to_cut.items():
            _log.warning("%s: the next start cuts the log at offset %d", key, damage.point.offset)
            await asyncio.to_thread(store.cut_at_next_start, key, damage.point, later)

    def _forget(self) -> None:
        """Forget the partitions that are not held any more."""
        held = {each.key for each in self._holdings.open_partitions()}
        self._verified_ms = {key: ms for key, ms in self._verified_ms.items() if key in held}
        self._damaged = {key: damage for key, damage in self._damaged.items() if key in held}

    def _is_due(self, partition: Partition) -> bool:
        """Whether it is time to read it through, although nobody has doubts."""
        if partition.key in self._damaged or partition.log.verification.is_suspect:
            return False
        verified_ms = self._verified_ms.get(partition.key)
        return verified_ms is None or monotonic_ms() - verified_ms >= VERIFY_INTERVAL_MS

    def _is_in_doubt(self, partition: Partition) -> bool:
        damage = self._damaged.get(partition.key)
        if damage is not None:  # Readers may come upon it again and again, until it is deleted.
            return damage.point.offset < partition.log.log_start_offset
        return partition.log.verification.is_suspect

    async def _look_into(self, partition: Partition) -> None:
        """There is doubt: afterwards there is none."""
        if not await self._finds_damage(partition, _FAST):
            self._damaged.pop(partition.key, None)

    async def _finds_damage(self, partition: Partition, pace: Pace) -> bool:
        key = partition.key
        try:
            damage = await partition.log.verification.verify(pace)
        except HeadraceError as error:
            _log.warning("%s: not verified: %s", partition.place, error)
            damage = None
        self._verified_ms[key] = monotonic_ms()
        if damage is not None and self._damaged.get(key) != damage:
            self._damaged[key] = damage
            self._warn(partition.place.topic, key.uid, "DataDamaged", f"partition {key.partition}: {damage.reason}")
        return damage is not None

    async def _maybe_hand_over(self, hand_over: Callable[[str], None]) -> None:
        if monotonic_ms() < self._patient_until_ms:
            return
        for key in tuple(self._damaged):
            partition = self._holdings.find(key)
            if partition is None or not self._can_do_without(key):
                continue
            await self._look_into(partition)  # Its segment may have been deleted since.
            if key in self._damaged and self._can_do_without(key):
                hand_over(f"{partition.place} is damaged here, and fetched again from its leader by the next life")

    def _can_do_without(self, key: PartitionKey) -> bool:
        partition, state = self._holdings.find(key), self._view.states.get(key)
        if partition is None or state is None:
            return False
        ready, least = self._view.ready_seats(monotonic_ms()), partition.replica.rules.min_insync_replicas
        return others_have_it(state, self._me, ready, least)


async def _repeat(look: Callable[[], Awaitable[None]]) -> None:
    while True:  # What a look looks at is let go of while this sleeps.
        await asyncio.sleep(VERIFY_TICK_MS / 1000)
        await look()
