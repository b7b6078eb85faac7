"""A broker that stops waits for whoever can take over, and for nobody else."""

from headrace.core.replication.draining import to_give_away, to_hand_over
from headrace.core.types import BrokerId
from tests.support.partition_sets import partition_state, seat

ME, OTHER = seat(0), seat(1)
BOTH = (BrokerId(0), BrokerId(1))
SHARED = partition_state(0, leader=ME, replicas=BOTH, isr=(ME, OTHER))
BEHIND = partition_state(1, leader=ME, replicas=BOTH, isr=(ME,))
ALONE = partition_state(2, leader=ME)
THEIRS = partition_state(3, leader=OTHER, replicas=BOTH, isr=(ME, OTHER))


def test_should_wait_only_for_what_a_ready_member_of_the_isr_could_lead() -> None:
    states = [SHARED, BEHIND, ALONE, THEIRS]
    assert to_hand_over(states, ME, {ME, OTHER}) == 1
    assert to_hand_over(states, ME, {ME}) == 0, "the other one drains too, or is away"
    assert to_hand_over(states, ME, {seat(1, 2)}) == 0, "its seat is void"


def test_should_count_what_names_a_broker_that_goes_for_good() -> None:
    assert to_give_away([SHARED, BEHIND, ALONE, THEIRS], BrokerId(1)) == 3
    assert to_give_away([ALONE], BrokerId(1)) == 0
