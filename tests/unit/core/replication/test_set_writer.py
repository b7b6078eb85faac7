"""A leader always knows who may be in the ISR and who surely is, whatever becomes of its writes.

The writes that a broker wants follow from what has landed, what it holds, and which others are ready.
"""

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.replication.isr import Isr, floor
from headrace.core.replication.residency import Holding
from headrace.core.replication.seats import LogFacts
from headrace.core.replication.set_writer import (
    ISR_LOOK_INTERVAL_MS,
    BrokerSituation,
    IsrLooks,
    LocalReplica,
    SetWriter,
    WantedState,
    isr_changes,
    wanted_states,
)
from headrace.core.resources.partition_set import PartitionSet, PartitionState
from headrace.core.types import BrokerId, LeaderEpoch, PartitionEpoch, PartitionId, PartitionKey, Seat, TopicUid
from tests.support.partition_sets import partition_set, partition_state, seat

LEADER = seat(0)
SECOND = seat(1)
THIRD = seat(2)
ALONE = partition_state(leader=LEADER, replicas=tuple(BrokerId(i) for i in range(3)))
ZERO = PartitionId(0)


def at(version: str, *states: PartitionState) -> PartitionSet:
    found = partition_set(*states)
    return replace(found, metadata=replace(found.metadata, resource_version=version))


def with_isr(*members: int, epoch: int = 1) -> PartitionState:
    return replace(ALONE, isr=tuple(seat(each) for each in members), partition_epoch=PartitionEpoch(epoch))


def test_a_proposed_addition_counts_at_once_for_the_high_watermark_and_not_for_the_floor() -> None:
    isr = Isr(with_isr(0)).proposing(with_isr(0, 1, epoch=2))
    assert isr.maximal == {LEADER, SECOND}
    assert isr.certain == {LEADER}


def test_a_proposed_removal_counts_at_once_for_the_floor_and_not_for_the_high_watermark() -> None:
    isr = Isr(with_isr(0, 1)).proposing(with_isr(0, epoch=2))
    assert isr.maximal == {LEADER, SECOND}
    assert isr.certain == {LEADER}


def test_attempts_add_up_until_one_of_them_is_decided() -> None:
    isr = Isr(with_isr(0, 1)).proposing(with_isr(0, epoch=2)).proposing(with_isr(0, 1, 2, epoch=3))
    assert isr.maximal == {LEADER, SECOND, THIRD}
    assert isr.certain == {LEADER}
    assert isr.next_epoch == 4


def test_one_write_is_in_flight_and_its_answer_settles_it() -> None:
    writer = SetWriter(at("7", ALONE))
    put = writer.write([with_isr(0, 1)])
    assert put == at("7", with_isr(0, 1, epoch=2))
    assert writer.write([with_isr(0, 2)]) is None
    writer.landed(at("8", with_isr(0, 1, epoch=2)))
    assert (writer.is_writing, writer.is_undecided) == (False, False)
    assert writer.isr(ZERO).certain == {LEADER, SECOND}
    assert writer.write([]) is None


def test_what_has_no_answer_is_written_again_on_the_same_version() -> None:
    writer = SetWriter(at("7", ALONE))
    writer.write([with_isr(0, 1)])
    writer.unanswered()
    assert writer.is_undecided
    assert writer.write([]) == at("7", with_isr(0, epoch=3)), "as it was known, so that one of the two is decided"


def test_a_read_that_shows_the_same_version_decides_nothing() -> None:
    writer = SetWriter(at("7", ALONE))
    writer.write([with_isr(0, 1)])
    writer.unanswered()
    writer.read(at("7", ALONE), based_on="7")
    assert writer.isr(ZERO).maximal == {LEADER, SECOND}
    writer.read(at("8", replace(ALONE, leader_epoch=LeaderEpoch(1))), based_on="6")
    assert writer.isr(ZERO).pending, "it began before the version was known"
    writer.read(at("8", ALONE), based_on="7")
    assert writer.isr(ZERO).pending is None
    assert writer.known.metadata.resource_version == "8"


def test_a_watch_that_is_late_decides_nothing() -> None:
    writer = SetWriter(at("7", with_isr(0, epoch=4)))
    writer.write([with_isr(0, 1)])
    writer.seen(at("5", with_isr(0, 2, epoch=3)))
    writer.seen(at("6", with_isr(0, epoch=4)))
    assert writer.isr(ZERO).pending
    writer.seen(at("8", with_isr(0, 1, epoch=5)))
    assert writer.isr(ZERO).pending is None
    assert writer.is_writing, "its answer is still to come"
    writer.landed(at("8", with_isr(0, 1, epoch=5)))
    assert writer.known == at("8", with_isr(0, 1, epoch=5))


def test_partitions_that_are_new_to_the_set_are_known_from_then_on() -> None:
    writer = SetWriter(at("7", ALONE))
    writer.seen(at("8", ALONE, partition_state(1, leader=LEADER)))
    assert writer.isr(PartitionId(1)).certain == {LEADER}


def test_what_has_no_answer_is_read_before_it_is_written_again() -> None:
    writer = SetWriter(at("7", ALONE))
    must_read = [False]

    def note() -> None:
        must_read.append(writer.must_read)

    writer.write([with_isr(0, 1)])
    note()
    writer.unanswered()
    note()
    writer.read(at("7", ALONE), based_on="7")
    note()  # It decided nothing: now the next attempt may.
    writer.write([])
    writer.unanswered()
    writer.seen(at("9", with_isr(0, 1, epoch=5)))
    note()
    assert must_read == [False, False, True, False, False]
    assert not writer.is_undecided


def test_a_write_to_what_is_found_to_be_gone_cannot_land_any_more() -> None:
    writer = SetWriter(at("7", with_isr(0)))
    writer.write([with_isr(0, 1)])
    writer.unanswered()
    writer.gone()
    assert (writer.is_undecided, writer.must_read, writer.is_writing) == (False, False, False)


def test_an_older_state_that_is_read_is_not_believed_and_nothing_is_written_upon_it() -> None:
    writer = SetWriter(at("7", with_isr(0, 1, epoch=5)))
    writer.write([with_isr(0)])
    writer.unanswered()
    writer.read(at("3", with_isr(0, epoch=4)), based_on="7")
    assert writer.is_regressed
    assert writer.isr(ZERO).maximal == {LEADER, SECOND}
    assert writer.isr(ZERO).certain == {LEADER}, "what was on its way may have landed before"
    assert writer.write([with_isr(0, 1)]) is None
    writer.seen(at("4", with_isr(0, epoch=5)))
    assert writer.write([]) is None
    writer.seen(at("5", with_isr(0, 2, epoch=6)))
    assert writer.write([with_isr(0)]) is not None
    writer.unanswered()
    writer.read(at("6", with_isr(0, 2, epoch=7)), based_on="5")
    assert writer.isr(ZERO).maximal == {LEADER, THIRD}


def test_another_history_of_the_same_epoch_is_not_believed() -> None:
    writer = SetWriter(at("7", with_isr(0, 1, epoch=5)))
    other = at("9", with_isr(0, 2, epoch=5))
    writer.seen(other)
    assert writer.known.metadata.resource_version == "7"
    writer.read(other, based_on="7")
    assert writer.regressed == {0}
    assert writer.isr(ZERO).maximal == {LEADER, SECOND}


def test_a_set_that_lost_a_partition_or_the_word_of_its_deletion_is_older() -> None:
    two = at("7", ALONE, partition_state(1, leader=LEADER))
    for older in (at("8", ALONE), replace(two, metadata=at("8").metadata)):
        writer = SetWriter(replace(two, deleting=True))
        writer.seen(older)
        assert writer.known.metadata.resource_version == "7"
        writer.read(older, based_on="7")
        assert writer.is_regressed


def test_what_changes_around_the_same_epochs_is_taken_over_while_nothing_depends_on_it() -> None:
    writer = SetWriter(at("7", ALONE))
    deleting = replace(at("8", ALONE), deleting=True)
    writer.write([with_isr(0, 1)])
    writer.seen(deleting)
    assert not writer.known.deleting
    writer.unanswered()
    writer.read(deleting, based_on="7")
    assert writer.known == deleting
    writer.seen(replace(deleting, metadata=at("9").metadata))
    assert writer.known.metadata.resource_version == "9"


def test_should_write_nothing_of_a_topic_that_went_back_for_another_broker() -> None:
    writer = SetWriter(at("7", ALONE))
    assert writer.write([with_isr(0, 1)], regressed=[writer.known.topic_uid]) is None
    assert writer.write([with_isr(0, 1)]) is not None
    writer.unanswered()
    assert writer.write([], regressed=[writer.known.topic_uid]) is None, "not even again"


@dataclass(frozen=True)
class Put:
    based_on: int
    written: PartitionSet


@dataclass
class Read:
    based_on: str
    found: PartitionSet | None = None
    """None until the server has looked."""


class Api:
    """An API server that answers late, or never; writes that land late, or never; a watch that lags; an operator."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.version = 7
        self.stored = at("7", ALONE)
        self.writer = SetWriter(self.stored)
        self.on_the_way: list[Put] = []
        """May land at any time, answered or not."""
        self.watch: deque[PartitionSet] = deque()
        self.reads: list[Read] = []
        self.steps: list[Callable[[], None]] = [
            *[self.write] * 3,
            *[self.arrive] * 3,
            self.arrive_late,
            self.operator_writes,
            self.watch_moves,
            self.read_begins,
            *[self.read_moves] * 2,
        ]

    def step(self) -> None:
        self.random.choice(self.steps)()
        self.check()

    def store(self, written: PartitionSet) -> PartitionSet:
        self.version += 1
        metadata = replace(written.metadata, resource_version=str(self.version))
        self.stored = replace(written, metadata=metadata)
        self.watch.append(self.stored)
        return self.stored

    def land(self, put: Put) -> PartitionSet | None:
        self.on_the_way.remove(put)
        return self.store(put.written) if put.based_on == self.version else None

    def write(self) -> None:
        members = [each for each in (1, 2) if self.random.random() < 0.5]
        put = self.writer.write([with_isr(0, *members)] if self.random.random() < 0.8 else [])
        if put is not None:
            self.on_the_way.append(Put(int(put.metadata.resource_version), put))

    def arrive(self) -> None:
        if not self.writer.is_writing:
            return
        answer = self.random.choice(["200", "lost on the way back", "late", "lost"])
        put = self.on_the_way[-1]
        landed = self.land(put) if answer in ("200", "lost on the way back") else None
        if answer == "lost":
            self.on_the_way.remove(put)
        if answer == "200" and landed is not None:
            self.writer.landed(landed)
        else:
            self.writer.unanswered()

    def arrive_late(self) -> None:
        """Of attempts that are given up already; the present one has `arrive`."""
        late = self.on_the_way[:-1] if self.writer.is_writing else self.on_the_way
        if late:
            self.land(self.random.choice(late))

    def operator_writes(self) -> None:
        """It takes members out, or changes something else of the set."""
        state = self.stored.partitions[0]
        taken = replace(state, isr=state.isr[:1], partition_epoch=PartitionEpoch(state.partition_epoch + 1))
        self.store(self.stored.with_partitions(taken) if self.random.random() < 0.5 else self.stored)

    def watch_moves(self) -> None:
        if self.watch:
            self.writer.seen(self.watch.popleft())

    def read_begins(self) -> None:
        self.reads.append(Read(self.writer.known.metadata.resource_version))

    def read_moves(self) -> None:
        """First the server looks, then, any time later, the answer is there."""
        if not self.reads:
            return
        read = self.random.choice(self.reads)
        if read.found is None:
            read.found = self.stored
        else:
            self.reads.remove(read)
            self.writer.read(read.found, based_on=read.based_on)

    def check(self) -> None:
        isr = self.writer.isr(ZERO)
        may_land = [put.written for put in self.on_the_way if put.based_on == self.version]
        for possible in (self.stored, *may_land):
            state = possible.partitions[0]
            assert set(state.isr) <= isr.maximal, "somebody is not waited for"
            if self.stored.partitions[0].partition_epoch == self.writer.known.partitions[0].partition_epoch:
                assert isr.certain <= set(state.isr), "somebody is counted who may be out"


@pytest.mark.parametrize("block", range(4))
def test_whatever_becomes_of_writes_reads_and_the_watch(block: int) -> None:
    for seed in range(block * 500, block * 500 + 500):
        api = Api(Random(seed))
        for _ in range(60):
            api.step()


@given(st.lists(st.frozensets(st.sampled_from([1, 2])), max_size=6))
def test_epochs_of_attempts_only_rise(wishes: list[frozenset[int]]) -> None:
    writer, epochs = SetWriter(at("7", ALONE)), [1]
    for members in wishes:
        put = writer.write([with_isr(0, *sorted(members))])
        assert put is not None
        epochs.append(put.partitions[0].partition_epoch)
        writer.unanswered()
    assert epochs == list(range(1, len(wishes) + 2))


ME = seat(0, 2)


ALL = (ME, SECOND, THIRD)
REPLICAS = tuple(BrokerId(i) for i in range(3))
LOG = LogFacts(LeaderEpoch(1))

KEY = PartitionKey(TopicUid("uid-1"), ZERO)


@dataclass
class Leader:
    """As a replica that leads in `state` and wants `isr`."""

    state: PartitionState
    isr: tuple[Seat, ...]
    leads: bool = True

    def wanted_isr(self, live: Collection[Seat], now_ms: int) -> tuple[Seat, ...]:
        return tuple(member for member in self.isr if member == ME or member in live)


def shared(number: int = 0, *, leader: Seat | None = ME, isr: tuple[Seat, ...] = ALL) -> PartitionState:
    return partition_state(number, leader=leader, replicas=REPLICAS, isr=isr)


def wished(
    *states: PartitionState, local: LocalReplica, ready: Collection[Seat] = ALL, leaving: str = "", failed: str = ""
) -> list[WantedState]:
    around = BrokerSituation(ME, ready, 0, failed, leaving)
    return wanted_states(partition_set(*states), {state.id: local for state in states}, around)


def opened(**changes: object) -> LocalReplica:
    return replace(LocalReplica(Holding.OPEN, LOG, min_insync_replicas=2), **changes)  # type: ignore[arg-type]


def test_should_want_nothing_of_what_is_not_here() -> None:
    assert wanted_states(partition_set(shared()), {}, BrokerSituation(ME, ALL, 0)) == []
    assert wished(shared(), local=opened()) == []


def test_should_claim_all_its_seats_in_one_write_when_it_returns() -> None:
    old = [partition_state(p, leader=seat(0, 1)) for p in range(3)]
    local = {
        PartitionId(0): LocalReplica(Holding.OPEN, LOG),
        PartitionId(1): LocalReplica(Holding.OPEN, LogFacts(LeaderEpoch(1), damage="12 bytes were cut")),
        PartitionId(2): LocalReplica(Holding.BUSY),
    }
    around = BrokerSituation(ME, ALL, 0)
    assert wanted_states(partition_set(*old), local, around) == []
    local[PartitionId(2)] = LocalReplica(Holding.BROKEN)

    claimed = wanted_states(partition_set(*old), local, around)

    assert [(wish.state.id, wish.state.leader, wish.is_claim) for wish in claimed] == [(0, ME, True), (1, ME, True)]
    assert [wish.loss for wish in claimed] == [
        "",
        "partition 1: acknowledged records may be missing: 12 bytes were cut",
    ]


def test_should_renew_and_give_up_its_seats_among_several() -> None:
    old = shared(leader=seat(0, 1), isr=(seat(0, 1), SECOND))
    (renewed,) = wished(old, local=opened())
    assert (renewed.state.isr, renewed.state.leader) == ((ME, SECOND), seat(0, 1))
    (given,) = wished(old, local=opened(log=LogFacts(LeaderEpoch(1), "cut")))
    assert given.state.isr == (SECOND,)


def test_should_claim_nothing_while_it_stops() -> None:
    local = {ZERO: LocalReplica(Holding.OPEN, LOG)}
    assert (
        wanted_states(
            partition_set(partition_state(leader=seat(0, 1))), local, BrokerSituation(ME, ALL, 0, claims=False)
        )
        == []
    )


def test_should_write_nothing_about_a_topic_whose_later_states_another_broker_knows() -> None:
    old = partition_set(shared(isr=(seat(0, 1), SECOND)))
    around = BrokerSituation(ME, ALL, 0)
    assert wanted_states(old, {ZERO: opened()}, around)
    assert wanted_states(old, {ZERO: opened()}, replace(around, regressed={old.topic_uid})) == []


def test_should_write_nothing_where_epochs_went_back() -> None:
    assert wished(shared(isr=(seat(0, 1),)), local=opened(log=LogFacts(LeaderEpoch(9)))) == []


def test_should_surrender_once_its_data_is_deleted() -> None:
    deleting = partition_set(partition_state(leader=ME), partition_state(1, leader=SECOND), deleting=True)
    around = BrokerSituation(ME, ALL, 0)
    assert wanted_states(deleting, {ZERO: LocalReplica(Holding.OPEN, LOG)}, around) == []
    (surrendered,) = wanted_states(deleting, {}, around)
    assert surrendered == WantedState(surrendered.state, "partition 0: its data is deleted")
    assert surrendered.state.replicas == ()


def test_should_write_the_isr_that_its_leader_wants() -> None:
    state = shared(isr=(ME, SECOND))
    leader = Leader(state, (ME, THIRD))
    (wish,) = wished(state, local=opened(leader=leader))
    assert (wish.state.isr, wish.state.partition_epoch) == ((ME, THIRD), 2)
    assert wish.reason == "partition 0: 1@1 out of sync, 2@1 in sync"
    assert [wish.reason for wish in wished(state, local=opened(leader=leader), ready=())] == [
        "partition 0: 1@1 out of sync"
    ]
    assert wished(state, local=opened(leader=Leader(state, (SECOND, ME)))) == [], "the order means nothing"
    (wish,) = wished(state, local=opened(leader=Leader(state, ALL)))
    assert wish.reason == "partition 0: 2@1 in sync"


def test_should_not_ask_a_leader_that_does_not_lead_in_this_very_state() -> None:
    state = shared(isr=(ME, SECOND))
    assert wished(state, local=opened(leader=Leader(shared(), ALL))) == []
    assert wished(state, local=opened(leader=Leader(state, ALL, leads=False))) == []


def test_should_look_after_the_isr_while_another_log_of_the_set_is_busy() -> None:
    states = [shared(isr=(ME, SECOND)), shared(1, isr=(seat(0, 1), SECOND))]
    local = {ZERO: opened(leader=Leader(states[0], ALL)), PartitionId(1): LocalReplica(Holding.BUSY, LOG)}
    (wish,) = wanted_states(partition_set(*states), local, BrokerSituation(ME, ALL, 0))
    assert wish.state.isr == ALL


def test_should_step_down_only_while_enough_others_are_in_sync_and_ready() -> None:
    (wish,) = wished(shared(), local=opened(), leaving="its disk is full")
    assert (wish.state.leader, wish.state.isr, wish.reason) == (None, (SECOND, THIRD), "partition 0: its disk is full")
    assert wished(shared(), local=opened(), leaving="it stops", ready={ME, SECOND}) == []
    assert wished(shared(isr=(ME, SECOND)), local=opened(), leaving="it stops") == []
    (wish,) = wished(shared(leader=SECOND), local=opened(), leaving="it stops")
    assert (wish.state.leader, wish.state.isr) == (SECOND, (SECOND, THIRD))
    assert wished(shared(leader=SECOND, isr=(SECOND, THIRD)), local=opened(), leaving="it stops") == []


def test_should_give_up_everything_but_the_last_entry_when_the_disk_failed() -> None:
    failed = "the disk failed"
    (wish,) = wished(shared(isr=(ME, SECOND)), local=opened(), ready=(), failed=failed)
    assert (wish.state.leader, wish.state.isr, wish.reason) == (None, (SECOND,), f"partition 0: {failed}")
    (wish,) = wished(shared(isr=(ME,)), local=opened(), failed=failed)
    assert (wish.state.leader, wish.state.isr) == (None, (ME,))
    assert wished(shared(leader=None, isr=(ME,)), local=opened(), failed=failed) == []
    (wish,) = wished(shared(leader=SECOND), local=opened(), failed=failed)
    assert (wish.state.leader, wish.state.isr) == (SECOND, (SECOND, THIRD))


seats = st.sampled_from([ME, seat(0, 1), SECOND, seat(1, 2), THIRD])


@given(
    st.one_of(st.none(), seats),
    st.lists(seats, min_size=1, max_size=3, unique_by=lambda one: one.broker),
    st.frozensets(seats),
    st.sampled_from(["", "cut"]),
    st.tuples(st.booleans(), st.booleans(), st.integers(1, 3)),
)
def test_should_never_empty_an_isr_nor_name_anybody_else(
    leader: Seat | None, isr: list[Seat], ready: frozenset[Seat], damage: str, how: tuple[bool, bool, int]
) -> None:
    state = shared(leader=leader, isr=tuple(isr))
    leaving, failed, least = how
    local = opened(log=LogFacts(LeaderEpoch(1), damage), min_insync_replicas=least)
    for wish in wished(state, local=local, ready=ready, leaving="x" * leaving, failed="x" * failed):
        after = wish.state
        assert after.isr
        assert set(after.isr) - {ME} <= set(isr)
        assert after.partition_epoch == state.partition_epoch + 1
        assert after.leader in (leader, None)
        if ME in isr and ME not in after.isr and not failed:
            assert len(after.isr) >= floor(state, least)


def test_should_count_isrs_that_shrink_and_grow_under_this_leader() -> None:
    before = partition_set(shared(), shared(1, isr=(ME, SECOND)), shared(2, leader=SECOND), shared(3))
    after = partition_set(
        shared(isr=(ME,)), shared(1, isr=(ME, THIRD)), shared(2, leader=SECOND, isr=(SECOND,)), shared(3, leader=None)
    )
    assert isr_changes(before, after, ME) == (2, 1)


def test_should_look_seldom_at_an_isr_that_is_whole() -> None:
    looks, whole = IsrLooks(), shared()
    assert looks.is_due(KEY, 0)
    for now_ms in (1_000, ISR_LOOK_INTERVAL_MS - 1):
        looks.looked(KEY, whole, ALL, now_ms)
        assert not looks.is_due(KEY, ISR_LOOK_INTERVAL_MS - 1)
        assert looks.is_due(KEY, ISR_LOOK_INTERVAL_MS)
    looks.looked(KEY, whole, ALL, ISR_LOOK_INTERVAL_MS)
    assert not looks.is_due(KEY, 2 * ISR_LOOK_INTERVAL_MS - 1)
    looks.looked(KEY, shared(isr=(ME, SECOND)), ALL, 5_000)
    assert looks.is_due(KEY, 5_000)
    looks.looked(KEY, whole, (ME, SECOND), 5_000)
    assert looks.is_due(KEY, 5_000)
    looks.looked(KEY, whole, ALL, 5_000)
    looks.forget(KEY)
    looks.forget(KEY)
    assert looks.is_due(KEY, 5_000)
