"""Everything that this broker writes to PartitionSets: one `SetWriter`, and at most one call under way, for each set.

    the view shows a set ──> take ──> wishes (pure) ──> IsrProposed ──> PUT ──> 200: landed
                               ^──────────────────────────────────────── GET <── anything else

Level-triggered: `take` and `look` are called with every change, `run` looks with every tick, and what is wanted is
decided anew each time. A leader hears of a PUT before it leaves, and of what became of it before it wants anything
else (`set_calls`). An API server that is away stops this, and neither produce nor fetch.

Invariants: a partition is told of states that have landed, once their leader epochs are on disk (`remember`, `apply`);
view and writers agree on what is newest, because answers go to both; a set that the view shows no more keeps its writer
until its write is decided. Owned by the process, used on its event loop.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from headrace.core.limits import ISR_TICK_MS
from headrace.core.log.epochs import NO_EPOCH
from headrace.core.replication.seats import may_act_on, regressed_topics, to_remember
from headrace.core.replication.set_writer import BrokerSituation, IsrLooks, LocalReplica, SetWriter, wanted_states
from headrace.core.resources.partition_set import PartitionSet
from headrace.core.types import PartitionId, PartitionKey, Seat, TopicUid
from headrace_broker.clock import monotonic_ms
from headrace_broker.coordination.cluster_view import ClusterView
from headrace_broker.coordination.set_calls import SetCalls, WrittenSet
from headrace_broker.holdings import Holdings
from headrace_broker.storage.epochs_seen import EpochsSeen


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
