"""Everything that this broker writes to PartitionSets: one `SetWriter`, and at most one call under way, for each set.

    the view shows a set ──> take ──> wishes (pure) ──> IsrProposed ──> PUT ──> 200: landed
                               ^──────────────────────────────────────── GET <── anything else

Level-triggered: `take` and `look` are called with every change, `run` looks with every tick, and the wishes are decided
anew each time. A leader hears of a PUT before it leaves, and of its result before it wants anything else. An API server
that is away stops this, and neither produce nor fetch.

A `WrittenSet` is a set that places something here, or of which something is here. Its call runs in a task of its own
(`SetCalls`); the answer goes to the set's writer and to the cluster view. PUTs are never repeated here: the writer
finds out whether one that has no answer has landed. While the API server does not answer, each set waits by itself,
with backoff and jitter. `TopicWarner` warns the owner of a Topic: a line in the log, and an Event, whether the Topic is
still there or not; nobody waits for an Event.

Invariants: a partition is told of states that have landed, once their leader epochs are on disk (`remember`, `apply`);
view and writers agree on what is newest, because answers go to both; a set that the view shows no more keeps its writer
until its write is decided. Owned by the process, used on its event loop.
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
"""Between two writes of one broker to the same PartitionSet: what comes up meanwhile is one write."""
EVENTS_PENDING_MAX = 64
"""Events that a broker has on their way at once; of more only its log tells."""


_log = logging.getLogger(__name__)


class TopicWarner:
    """One per process. Nobody waits for an Event; of too many at once only the log knows."""

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
        """What is not recorded in time is lost: each call has its own time limit."""
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


_EPOCH_WENT_BACK = (
    "PartitionSet {} went back in time, as after a restore of the API server's data: this broker goes on with what it"
    " knows, and nobody is elected; run `headrace cluster recover`"
)


@dataclass(slots=True)
class WrittenSet:
    writer: SetWriter
    call: asyncio.Task[None] | None = None
    is_stale: bool = True
    """It was not looked at since something changed."""
    asked: Collection[PartitionId] = ()
    """Partitions that it is time to ask for their ISR."""
    is_doubted: bool = False
    """Something older was shown than is known: only a read tells why."""
    is_gone: bool = False
    """There is no such object any more."""
    wished: Sequence[WantedState] = ()
    """When it was last looked at."""
    due_ms: float = 0
    """Nothing is sent before."""
    backoff: Backoff = field(default_factory=lambda: Backoff(Random()))

    @property
    def name(self) -> str:
        return self.writer.known.metadata.name

    @property
    def is_decided(self) -> bool:
        """Whether nothing that was sent may land yet."""
        return self.call is None and not (self.writer.is_writing or self.writer.is_undecided)

    @property
    def is_settled(self) -> bool:
        """Nothing is wanted, under way or undecided; of a set that went back in time nothing can be wanted."""
        wants = self.is_stale or self.wished or self.writer.is_undecided
        return self.call is None and (not wants or self.writer.is_regressed)


class SetCalls:
    """One per process."""

    def __init__(
        self, me: Seat, client: KubeClient, view: ClusterView, metrics: SetMetrics, teller: TopicWarner
    ) -> None:
        self._me = me
        self._client = client
        self._view = view
        self._metrics = metrics
        self._teller = teller
        self._turns = asyncio.Semaphore(SET_CALLS_MAX)
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        """A call has ended, or a wait is over."""

    def put(self, each: WrittenSet, put: PartitionSet) -> None:
        """Send what `each.writer` says is to be written, for the sake of what was wished."""
        self._start(each, self._put(each, put, each.wished))

    def read(self, each: WrittenSet) -> None:
        """Find out what is there now."""
        self._start(each, self._read(each))

    def learn(self, each: WrittenSet, news: PartitionSet, tell: Callable[[PartitionSet], None]) -> None:
        """`tell`, of its writer, is told `news`."""
        before, was_regressed = each.writer.known, each.writer.is_regressed
        tell(news)
        shrinks, expands = isr_changes(before, each.writer.known, self._me)
        self._metrics.isr_shrinks.inc(shrinks)
        self._metrics.isr_expands.inc(expands)
        if each.writer.is_regressed and not was_regressed:
            self._teller.warn(
                before.topic_name, before.topic_uid, "MetadataRegressed", _EPOCH_WENT_BACK.format(each.name)
            )
            self._view.changed.set()

    async def wait(self, timeout_s: float) -> None:
        """Until a set may be looked at again, at most so long."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return
        self._changed.clear()

    async def close(self) -> None:
        """What is under way is not waited for: it lands, or does not."""
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
        except Exception as error:  # a mistake of our own must not leave the set without a writer
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
        each.wished = ()  # All of it is so now: what else is wanted will be found when it may be sent.
        self._hold(each, SET_WRITE_INTERVAL_MS_MIN)
        self.learn(each, landed, each.writer.landed)
        self._view.put_answer(landed)
        _log.info("wrote %s: %s", each.name, "; ".join(wish.reason for wish in wished) or "as it was")
        for wish in wished:
            if wish.loss:
                self._teller.warn(landed.topic_name, landed.topic_uid, "RecordsMayBeLost", wish.loss)

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
        """None where it is gone, whatever else has its name by now. Raises ApiError."""
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
        """By the uid of the object: one that was made anew under the same name is another."""
        self._looks = IsrLooks()
        self._calls = calls
        self._fallen: frozenset[TopicUid] = frozenset()
        """Topics of which the API server shows lower leader epochs than are remembered."""
        self._went_back: frozenset[PartitionKey] = frozenset()
        """Partitions of which it shows an older state than has landed."""
        self._parted: frozenset[PartitionKey] = frozenset()
        """Those that take part in nothing here: of an epoch that they know they are shown another leader."""
        self.claims = True
        """Whether this broker takes what it may; whatever is taken from one that stops is not claimed back."""
        self._stopping = self._hampered = self._failed = ""
        """As in `BrokerSituation`; the first two are its `leaving`."""
        self._leases: tuple[Collection[Seat], Collection[TopicUid]] = (), ()
        """What they said when sets were last looked at: who is ready, and what went back. Everything hangs on it."""

    def undecided(self) -> int:
        """Sets with a write of which it is not known whether it has landed."""
        return sum(each.writer.is_undecided for each in self._sets.values())

    def sets(self) -> list[PartitionSet]:
        """As they have landed: every one that concerns this broker."""
        return [each.writer.known for each in self._sets.values()]

    @property
    def has_claims(self) -> bool:
        """Whether a seat that this broker may take was not taken yet when it last looked."""
        return any(wish.is_claim for each in self._sets.values() for wish in each.wished)

    async def run(self) -> None:
        """For ever: look after the ISRs of what is led here, and at each set again after its call or its wait."""
        while True:
            await self._calls.wait(ISR_TICK_MS / 1000)
            claimed = self.has_claims
            self.look()
            if claimed and not self.has_claims:
                self._view.changed.set()  # A start waits for the last claim, and nothing else need change any more.

    @property
    def regressed(self) -> frozenset[TopicUid]:
        """Topics of which the API server shows less, or something else, than is known here."""
        return self._fallen | {key.uid for key in self._holdings.regressed}

    def take(self, sets: Sequence[PartitionSet]) -> None:
        """These are all that there are now, as the view has them."""
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
        """Tell every open partition what has landed, and what may land yet."""
        seen = self._seen.read()
        for each in self._sets.values():
            known = each.writer.known
            for state in known.partitions:
                key = known.key(state.id)
                partition = self._holdings.find_opened_for(known, state.id)
                if partition is None or not may_act_on(state, self._me.broker, seen.get(key, NO_EPOCH)):
                    continue
                isr = each.writer.isr(state.id)
                if partition.replica.isr != isr:  # else it has heard all of that: most have, of a thousand
                    partition.apply(state)
                    partition.isr_proposed(isr.pending)
        self._parted = frozenset(each.key for each in self._holdings.open_partitions() if each.replica.regressed)
        self._holdings.regressed = self._went_back | self._parted

    def look(self) -> None:
        """Send what is wanted by now, of every set that nothing is under way for."""
        now_ms = monotonic_ms()
        self._sets = {uid: each for uid, each in self._sets.items() if not each.is_gone}
        self._note_due(now_ms)
        ready, regressed = self._view.ready_seats(now_ms), self._view.regressed(now_ms)
        if (ready, regressed) != self._leases:
            self._leases = ready, regressed
            self._look_anew()
        around = BrokerSituation(
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
                self._look_at(each, around)

    def leave(self, why: str) -> None:
        """It stops: have it step down wherever others can do without it."""
        self._stopping = why
        self._look_anew()

    def step_aside(self, why: str) -> None:
        """The same for a while: not any more where `why` is empty, unless it stops."""
        self._hampered = why
        self._look_anew()

    async def give_up(self, why: str, timeout_s: float) -> bool:
        """The disk failed: give up every seat; whether all of that has landed in time."""
        self._failed = why
        return await self.settle(timeout_s)

    async def settle(self, timeout_s: float) -> bool:
        """Look until nothing is wanted any more, at most so long; whether it came to that."""
        self._look_anew()
        try:
            async with asyncio.timeout(timeout_s):
                while not all(each.is_settled for each in self._sets.values()):
                    self.look()
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
        """Whether a write may land yet: whoever forgot it would count votes without those whom it adds."""
        each = self._sets.get(uid)
        return each is not None and not each.is_decided

    def _note_due(self, now_ms: int) -> None:
        """Partitions that are led here, and that it is time to ask whom they want in sync."""
        due = defaultdict[TopicUid, set[PartitionId]](set)
        for partition in self._holdings.open_partitions():
            if partition.leads and self._looks.is_due(partition.key, now_ms):
                due[partition.key.uid].add(partition.key.partition)
        for each in self._sets.values():
            each.asked = due.get(each.writer.known.topic_uid, set())

    def _look_at(self, each: WrittenSet, around: BrokerSituation) -> None:
        writer, is_whole, each.is_stale = each.writer, each.is_stale, False
        if writer.must_read or each.is_doubted:
            self._calls.read(each)
            return
        each.wished = wanted_states(writer.known, self._local(each, around, is_whole=is_whole), around)
        put = writer.write((wish.state for wish in each.wished), regressed=around.regressed)
        if put is None:
            return
        for state in put.partitions:
            partition = self._holdings.find_opened_for(put, state.id)
            if partition is not None:
                partition.isr_proposed(writer.isr(state.id).pending)
        for wish in each.wished:
            self._looks.forget(put.key(wish.state.id))
        self._calls.put(each, put)

    def _local(self, each: WrittenSet, around: BrokerSituation, *, is_whole: bool) -> dict[PartitionId, LocalReplica]:
        """Of all that is here of the set; else of what is to be asked alone, where nothing has changed."""
        known, local, seen = each.writer.known, {}, self._seen.read()
        for state in known.partitions:
            asks = state.id in each.asked
            if not (is_whole or asks or known.deleting):  # of that, what is not here counts as deleted
                continue
            key = known.key(state.id)
            here = self._holdings.local(key, seen.get(key, NO_EPOCH), asks=asks)
            if here is not None:
                local[state.id] = here
            if here is not None and here.leader is not None:
                self._looks.looked(key, state, around.ready, around.now_ms)
        return local
