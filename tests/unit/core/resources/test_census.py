"""A cluster in numbers: only leaders and replicas that live count as there."""

from headrace.core.resources.partition_set import PartitionState, census
from headrace.core.types import BrokerId, Incarnation, LeaderEpoch, PartitionEpoch, PartitionId, Seat

ZERO, ONE, TWO = (Seat(BrokerId(broker), Incarnation(2)) for broker in range(3))
ONE_BEFORE = Seat(BrokerId(1), Incarnation(1))


def state(leader: Seat | None, *isr: Seat, replicas: tuple[int, ...] = (0, 1, 2)) -> PartitionState:
    brokers = tuple(BrokerId(broker) for broker in replicas)
    return PartitionState(PartitionId(0), leader, LeaderEpoch(1), PartitionEpoch(1), brokers, isr)


def test_should_count_what_is_whole_by_broker() -> None:
    found = census([state(ZERO, ZERO, ONE, TWO), state(ONE, ONE, replicas=(1,))], {ZERO, ONE, TWO})
    assert (found.partitions, found.offline, found.under_replicated) == (2, 0, 0)
    assert (found.leaders, found.replicas) == ({0: 1, 1: 1}, {0: 1, 1: 2, 2: 1})


def test_should_take_a_leader_of_an_earlier_life_for_none_and_its_seat_for_out_of_sync() -> None:
    found = census([state(ONE_BEFORE, ONE_BEFORE, ZERO, TWO)], {ZERO, ONE, TWO})
    assert (found.offline, found.under_replicated, found.leaders) == (1, 1, {})


def test_should_count_a_partition_that_nobody_leads_as_offline() -> None:
    found = census([state(None, ZERO)], {ZERO})
    assert (found.offline, found.under_replicated) == (1, 1)
