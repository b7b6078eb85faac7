"""Everything that this broker writes to PartitionSets: one `SetWriter`, and at most one call under way, for each set.

    the view shows a set ──> take ──> wishes (pure) ──> IsrProposed ──> PUT ──> 200: landed
                               ^──────────────────────────────────────── GET <── anything else

It is level-triggered: `take` and `check` are called with every change, `run` checks with every tick, and the wishes are
decided anew each time. A leader gets a PUT before it is sent, and its result before it wants anything else. An API
server that is away stops this, and neither produce nor fetch.

A `WrittenSet` is a set that places something here, or of which something is here. Its call runs in a task of its own
(`SetCalls`); the answer goes to the set's writer and to the cluster view. PUTs are never repeated here: the writer
finds out whether one that has no answer has landed. While the API server does not answer, each set waits by itself,
with backoff and jitter. `TopicWarner` warns the owner of a Topic: a line in the log, and an Event, whether the Topic is
still there or not; no task waits for an Event.

Invariants: a partition gets states that have landed, once their leader epochs are on disk (`remember`, `apply`); view
and writers agree on what is newest, because answers go to both; a set that the view shows no more keeps its writer
until its write is decided. The process owns it and uses it on its event loop.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from prometheus_client import CollectorRegistry

from headrace.core.limits import ISR_TICK_MS, SET_CALLS_MAX
from headrace.core.log.epochs import NO_EPOCH
from headrace.core.replication.seats import may_act_on, regressed_topics, to_remember
from headrace.core.replication.set_writer import (
    BrokerSituation,
    IsrLooks,
    LocalReplica,
    SetWriter,
    WantedState,
    isr_changes,
    wanted_states,
)
from headrace.core.resources.metadata import Metadata
from headrace.core.resources.partition_set import PartitionSet
from headrace.core.types import BrokerId, PartitionId, PartitionKey, Seat, TopicName, TopicUid
from headrace.kube.client import Backoff, KubeClient
from headrace.kube.errors import ApiError, ConflictError, NotFoundError
from headrace.kube.events import EventRecorder, EventType, Regarding
from headrace.kube.resource import PARTITION_SETS, TOPICS
from headrace_broker.clock import monotonic_ms
from headrace_broker.cluster.view import ClusterView
from headrace_broker.metrics import Registration
from headrace_broker.partition.holdings import Holdings
from headrace_broker.storage.data_directory import EpochsSeen

SET_WRITE_INTERVAL_MS_MIN = 100
"""The time between two writes of one broker to the same PartitionSet: changes in between become one write."""
EVENTS_PENDING_MAX = 64
"""The number of Events that a broker has on their way at once; more are only logged."""


_log = logging.getLogger(__name__)
_EPOCH_WENT_BACK = (
    "PartitionSet {} went back in time, as after a restore of the API server's data: this broker goes on with what it"
    " knows, and nobody is elected; run `headrace cluster recover`"
)


class TopicWarner:
    """The writer of Events about topics, one per process. No task waits for an Event; too many at once are only
    logged."""

    def __init__(self, client: KubeClient, broker: BrokerId) -> None:
        self._events = EventRecorder(client, f"headrace-broker-{broker}")
        self._pending: set[asyncio.Task[None]] = set()

    def warn(self, name: TopicName, uid: TopicUid, reason: str, message: str) -> None:
        _log.warning("%s: %s: %s", name, reason, message)
        if len(self._pending) < EVENTS_PENDING_MAX:
            topic = Regarding(TOPICS, Metadata(name=name.name, namespace=name.namespace, uid=uid))
            event = asyncio.create_task(self._events.record(topic, EventType.WARNING, reason, message))
            self._pending.add(event)
            event.add_done_callback(self._pending.discard)

    async def close(self) -> None:
        """Close it; what is not recorded in time is lost: each call has its own time limit."""
        await asyncio.gather(*self._pending, return_exceptions=True)


class SetMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        made = Registration(registry)
        self.isr_shrinks = made.counter("headrace_isr_shrinks", "ISRs of partitions led here that have lost a member.")
        self.isr_expands = made.counter(
            "headrace_isr_expands", "ISRs of partitions led here that have gained a member."
        )
        self.writes = made.counter(
            "headrace_broker_set_writes",
            "Writes to PartitionSets, by outcome: landed, conflict, unanswered (whether it landed is not known yet).",
            "outcome",
        )
        self._undecided = made.gauge(
            "headrace_broker_set_writes_undecided",
            "PartitionSets with a write of which it is not known whether it has landed.",
        )

    def watch(self, undecided: Callable[[], float]) -> None:
        self._undecided.set_function(undecided)


@dataclass(slots=True)
class WrittenSet:
    writer: SetWriter
    call: asyncio.Task[None] | None = None
    is_stale: bool = True
    """True where it was not checked since something changed."""
    asked: Collection[PartitionId] = ()
    """The partitions whose ISR is to be asked for now."""
    is_doubted: bool = False
    """True where something older was shown than is known: only a read can explain it."""
    is_gone: bool = False
    """True where there is no such object any more."""
    wished: Sequence[WantedState] = ()
    """The wishes at the last check."""
    due_ms: float = 0
    """The time before which nothing is sent."""
    backoff: Backoff = field(default_factory=lambda: Backoff(Random()))

    @property
    def name(self) -> str:
        return self.writer.known.metadata.name

    @property
    def is_decided(self) -> bool:
        """Return whether nothing that was sent may land yet."""
        return self.call is None and not (self.writer.is_writing or self.writer.is_undecided)

    @property
    def is_settled(self) -> bool:
        """Return whether nothing is wanted, under way or undecided; of a set that went back in time nothing can be
        wanted."""
        wants = self.is_stale or self.wished or self.writer.is_undecided
        return self.call is None and (not wants or self.writer.is_regressed)


class SetCalls:
    """The calls about sets, one object per process."""

    def __init__(
        self, me: Seat, client: KubeClient, view: ClusterView, metrics: SetMetrics, warner: TopicWarner
    ) -> None:
        self._me = me
        self._client = client
        self._view = view
        self._metrics = metrics
        self._warner = warner
        self._turns = asyncio.Semaphore(SET_CALLS_MAX)
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        """An event for the end of a call, or of a wait."""

    def put(self, each: WrittenSet, put: PartitionSet) -> None:
        """Send the PUT of `each.writer`, for the sake of what was wished."""
        self._start(each, self._put(each, put, each.wished))

    def read(self, each: WrittenSet) -> None:
        """Read the set as it is now."""
        self._start(each, self._read(each))

    def learn(self, each: WrittenSet, news: PartitionSet, tell: Callable[[PartitionSet], None]) -> None:
        """Pass `news` to `tell`, a method of its writer."""
        before, was_regressed = each.writer.known, each.writer.is_regressed
        tell(news)
        shrinks, expands = isr_changes(before, each.writer.known, self._me)
        self._metrics.isr_shrinks.inc(shrinks)
        self._metrics.isr_expands.inc(expands)
        if each.writer.is_regressed and not was_regressed:
            self._warner.warn(
                before.topic_name, before.topic_uid, "MetadataRegressed", _EPOCH_WENT_BACK.format(each.name)
            )
            self._view.changed.set()

    async def wait(self, timeout_s: float) -> None:
        """Wait until a set may be checked again, at most so long."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return
        self._changed.clear()

    async def close(self) -> None:
        """Close it without waiting for what is under way: it lands, or does not."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, each: WrittenSet, call: Coroutine[Any, Any, None]) -> None:
        each.call = asyncio.create_task(self._run(each, call), name=f"call for {each.name}")
        self._tasks.add(each.call)
        each.call.add_done_callback(self._tasks.discard)

    async def _run(self, each: WrittenSet, call: Coroutine[Any, Any, None]) -> None:
        try:
            async with self._turns:
                await call
        except ApiError as error:
            self._back_off(each, error)
        except Exception as error:  # A mistake of our own must not leave the set without a writer.
            _log.exception("%s", each.name)
            self._back_off(each, error)
        each.call, each.is_stale = None, True
        self._changed.set()

    async def _put(self, each: WrittenSet, put: PartitionSet, wished: Sequence[WantedState]) -> None:
        try:
            landed = await self._client.replace(PARTITION_SETS, put.to_object())
        except Exception as error:
            each.writer.unanswered()
            self._metrics.writes.labels("conflict" if isinstance(error, ConflictError) else "unanswered").inc()
            raise
        self._metrics.writes.labels("landed").inc()
        each.backoff.reset()
        each.wished = ()  # All of it has landed now: further wishes will be found when they may be sent.
        self._hold(each, SET_WRITE_INTERVAL_MS_MIN)
        self.learn(each, landed, each.writer.landed)
        self._view.put_answer(landed)
        _log.info("wrote %s: %s", each.name, "; ".join(wish.reason for wish in wished) or "as it was")
        for wish in wished:
            if wish.loss:
                self._warner.warn(landed.topic_name, landed.topic_uid, "RecordsMayBeLost", wish.loss)

    async def _read(self, each: WrittenSet) -> None:
        each.is_doubted, known = False, each.writer.known
        found = await self._find(known)
        if found is None:
            each.writer.gone()
            each.is_gone = True
            self._view.remove_set(known)
            return
        based_on = known.metadata.resource_version
        self.learn(each, found, lambda read: each.writer.read(read, based_on=based_on))
        if not each.writer.is_regressed:
            self._view.put_answer(found)

    async def _find(self, known: PartitionSet) -> PartitionSet | None:
        """Return the set; None where it is gone, whatever else has its name by now. Raises ApiError."""
        try:
            found = await self._client.get(PARTITION_SETS, known.metadata.name, known.metadata.namespace)
        except NotFoundError:
            return None
        return found if found.uid == known.uid else None

    def _back_off(self, each: WrittenSet, error: Exception) -> None:
        wait_ms = each.backoff.next_ms()
        self._hold(each, wait_ms)
        level = logging.INFO if isinstance(error, ConflictError) else logging.WARNING
        _log.log(level, "%s: looking at it again in %.0f ms: %s", each.name, wait_ms, error)

    def _hold(self, each: WrittenSet, wait_ms: float) -> None:
        each.due_ms = monotonic_ms() + wait_ms
        asyncio.get_running_loop().call_later(wait_ms / 1000, self._changed.set)


class SetWriting:
    def __init__(self, me: Seat, view: ClusterView, holdings: Holdings, seen: EpochsSeen, calls: SetCalls) -> None:
        self._me = me
        self._view = view
        self._holdings = holdings
        self._seen = seen
        self._sets: dict[str, WrittenSet] = {}
        """The sets by the uid of the object: one that was made anew under the same name is another."""
        self._looks = IsrLooks()
        self._calls = calls
        self._fallen: frozenset[TopicUid] = frozenset()
        """The topics of which the API server shows lower leader epochs than are remembered."""
        self._went_back: frozenset[PartitionKey] = frozenset()
        """The partitions of which it shows an older state than has landed."""
        self._parted: frozenset[PartitionKey] = frozenset()
        """The partitions that take part in nothing here: another leader is shown for an epoch that they know."""
        self.claims = True
        """True where this broker takes what it may; a seat that is taken from a stopping broker is not claimed back."""
        self._stopping = self._hampered = self._failed = ""
        """The reasons as in `BrokerSituation`; the first two are its `leaving`."""
        self._leases: tuple[Collection[Seat], Collection[TopicUid]] = (), ()
        """The state of the Leases at the last check of sets: the seats that are ready, and the topics that went back.
        Every wish depends on it."""

    def undecided(self) -> int:
        """Return the number of sets with a write of which it is not known whether it has landed."""
        return sum(each.writer.is_undecided for each in self._sets.values())

    def sets(self) -> list[PartitionSet]:
        """Return every set that concerns this broker, as it has landed."""
        return [each.writer.known for each in self._sets.values()]

    @property
    def has_claims(self) -> bool:
        """Return whether a seat that this broker may take was not taken yet at the last check."""
        return any(wish.is_claim for each in self._sets.values() for wish in each.wished)

    async def run(self) -> None:
        """Run without end: update the ISRs of what is led here, and check each set again after its call or its wait."""
        while True:
            await self._calls.wait(ISR_TICK_MS / 1000)
            claimed = self.has_claims
            self.check()
            if claimed and not self.has_claims:
                self._view.changed.set()  # A start waits for the last claim, and nothing else may change any more.

    @property
    def regressed(self) -> frozenset[TopicUid]:
        """Return the topics of which the API server shows less, or something else, than is known here."""
        return self._fallen | {key.uid for key in self._holdings.regressed}

    def take(self, sets: Sequence[PartitionSet]) -> None:
        """Take all the sets that there are now, as the view has them."""
        held = self._holdings.held().keys()
        here = {one.metadata.uid: one for one in sets if self._concerns(one, held) or self._awaits(one.metadata.uid)}
        for uid in self._sets.keys() - here.keys():
            if not self._awaits(uid):
                del self._sets[uid]
        doubted = self._view.take_doubted()
        for uid, partition_set in here.items():
            each = self._sets.setdefault(uid, WrittenSet(SetWriter(partition_set)))
            each.is_stale = True
            if partition_set is not each.writer.known:
                self._calls.learn(each, partition_set, each.writer.seen)
            each.is_doubted = each.is_doubted or uid in doubted
        self._went_back = frozenset(
            each.writer.known.key(number) for each in self._sets.values() for number in each.writer.regressed
        )
        self._holdings.regressed = self._went_back | self._parted
        self._fallen = regressed_topics(sets, self._seen.read())

    async def remember(self) -> None:
        """Put on disk the leader epochs that are about to be acted on. Raises StorageFailedError, DiskFullError."""
        known = (each.writer.known for each in self._sets.values())
        risen = to_remember(known, self._me.broker, self._seen.read())
        if risen:
            await asyncio.to_thread(self._seen.write, risen)

    def apply(self) -> None:
        """Pass to every open partition what has landed, and what may land yet."""
        seen = self._seen.read()
        for each in self._sets.values():
            known = each.writer.known
            for state in known.partitions:
                key = known.key(state.id)
                partition = self._holdings.find_opened_for(known, state.id)
                if partition is None or not may_act_on(state, self._me.broker, seen.get(key, NO_EPOCH)):
                    continue
                isr = each.writer.isr(state.id)
                if partition.replica.isr != isr:  # Otherwise the partition has it already: most have, of a thousand.
                    partition.apply(state)
                    partition.isr_proposed(isr.pending)
        self._parted = frozenset(each.key for each in self._holdings.open_partitions() if each.replica.regressed)
        self._holdings.regressed = self._went_back | self._parted

    def check(self) -> None:
        """Send what is wanted by now, of every set that nothing is under way for."""
        now_ms = monotonic_ms()
        self._sets = {uid: each for uid, each in self._sets.items() if not each.is_gone}
        self._note_due(now_ms)
        ready, regressed = self._view.ready_seats(now_ms), self._view.regressed(now_ms)
        if (ready, regressed) != self._leases:
            self._leases = ready, regressed
            self._look_anew()
        situation = BrokerSituation(
            self._me,
            ready,
            now_ms,
            failed=self._failed,
            leaving=self._stopping or self._hampered,
            regressed=regressed,
            claims=self.claims,
        )
        for each in self._sets.values():
            if (each.is_stale or each.asked) and each.call is None and each.due_ms <= now_ms:
                self._look_at(each, situation)

    def leave(self, why: str) -> None:
        """Stop, and step down wherever others can do without this broker."""
        self._stopping = why
        self._look_anew()

    def step_aside(self, why: str) -> None:
        """Step aside for a while: no longer where `why` is empty, unless the broker stops."""
        self._hampered = why
        self._look_anew()

    async def give_up(self, why: str, timeout_s: float) -> bool:
        """Give up every seat, as the disk failed; return whether all of that has landed in time."""
        self._failed = why
        return await self.settle(timeout_s)

    async def settle(self, timeout_s: float) -> bool:
        """Check until nothing is wanted any more, at most so long; return whether it came to that."""
        self._look_anew()
        try:
            async with asyncio.timeout(timeout_s):
                while not all(each.is_settled for each in self._sets.values()):
                    self.check()
                    await self._calls.wait(ISR_TICK_MS / 1000)
        except TimeoutError:
            return False
        return True

    def _look_anew(self) -> None:
        for each in self._sets.values():
            each.is_stale = True

    # -- deciding ----------------------------------------------------------------------------------------------------

    def _concerns(self, partition_set: PartitionSet, held: Iterable[PartitionKey]) -> bool:
        states = partition_set.partitions
        return any(self._me.broker in state.replicas or partition_set.key(state.id) in held for state in states)

    def _awaits(self, uid: str) -> bool:
        """Return whether a write may land yet: without it votes would be counted without the members that it adds."""
        each = self._sets.get(uid)
        return each is not None and not each.is_decided

    def _note_due(self, now_ms: int) -> None:
        """Note the partitions that are led here and whose ISR is to be asked for now."""
        due = defaultdict[TopicUid, set[PartitionId]](set)
        for partition in self._holdings.open_partitions():
            if partition.leads and self._looks.is_due(partition.key, now_ms):
                due[partition.key.uid].add(partition.key.partition)
        for each in self._sets.values():
            each.asked = due.get(each.writer.known.topic_uid, set())

    def _look_at(self, each: WrittenSet, situation: BrokerSituation) -> None:
        writer, is_whole, each.is_stale = each.writer, each.is_stale, False
        if writer.must_read or each.is_doubted:
            self._calls.read(each)
            return
        each.wished = wanted_states(writer.known, self._local(each, situation, is_whole=is_whole), situation)
        put = writer.write((wish.state for wish in each.wished), regressed=situation.regressed)
        if put is None:
            return
        for state in put.partitions:
            partition = self._holdings.find_opened_for(put, state.id)
            if partition is not None:
                partition.isr_proposed(writer.isr(state.id).pending)
        for wish in each.wished:
            self._looks.forget(put.key(wish.state.id))
        self._calls.put(each, put)

    def _local(
        self, each: WrittenSet, situation: BrokerSituation, *, is_whole: bool
    ) -> dict[PartitionId, LocalReplica]:
        """Return the replicas that are here of the set; only those that are asked for where nothing else has
        changed."""
        known, local, seen = each.writer.known, {}, self._seen.read()
        for state in known.partitions:
            asks = state.id in each.asked
            if not (is_whole or asks or known.deleting):  # Of that set, a partition that is not here counts as deleted.
                continue
            key = known.key(state.id)
            here = self._holdings.local(key, seen.get(key, NO_EPOCH), asks=asks)
            if here is not None:
                local[state.id] = here
            if here is not None and here.leader is not None:
                self._looks.looked(key, state, situation.ready, situation.now_ms)
        return local
