"""What a broker wants written follows from what has landed, what it holds, and who else is ready."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.replication.isr import floor
from headrace.core.replication.residency import Holding
from headrace.core.replication.seats import LogFacts
from headrace.core.replication.set_writer import (
    ISR_LOOK_INTERVAL_MS,
    BrokerSituation,
    IsrLooks,
    LocalReplica,
    WantedState,
    isr_changes,
    wanted_states,
)
from headrace.core.resources.partition_set import PartitionState
from headrace.core.types import BrokerId, LeaderEpoch, PartitionId, PartitionKey, Seat, TopicUid
from tests.support.partition_sets import partition_set, partition_state, seat

ME, SECOND, THIRD = seat(0, 2), seat(1), seat(2)
ALL = (ME, SECOND, THIRD)
REPLICAS = tuple(BrokerId(i) for i in range(3))
LOG = LogFacts(LeaderEpoch(1))
ZERO = PartitionId(0)
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
