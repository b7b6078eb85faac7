from headrace.core.control.liveness import Liveness
from headrace.core.resources.lease import BrokerLease
from headrace.core.resources.metadata import Metadata
from headrace.core.types import BrokerId, Incarnation

BROKER = BrokerId(0)


def lease(renewed: int, *, incarnation: int = 1, broker: BrokerId = BROKER) -> BrokerLease:
    return BrokerLease(
        Metadata(f"headrace-broker-{broker}"), broker, Incarnation(incarnation), "", renew_time=str(renewed)
    )


def watching(*leases: BrokerLease, at_ms: int = 0) -> Liveness:
    liveness = Liveness(duration_ms=10)
    liveness.observe_all(leases, at_ms)
    return liveness


def test_should_be_live_for_the_lease_time_when_it_was_just_seen() -> None:
    liveness = watching(lease(1))
    assert liveness.is_live(BROKER, 9)
    assert not liveness.is_live(BROKER, 10)


def test_should_not_be_live_when_it_was_never_seen() -> None:
    assert not watching().is_live(BROKER, 0)
    assert not watching().is_proven(BROKER)


def test_should_gain_no_time_when_the_same_state_is_read_again() -> None:
    liveness = watching(lease(1))
    liveness.observe_all([lease(1)], 9)
    assert not liveness.is_live(BROKER, 10)
    assert not liveness.is_proven(BROKER)


def test_should_gain_the_lease_time_and_be_proven_when_it_renews() -> None:
    liveness = watching(lease(1))
    liveness.observe(lease(2), 9)
    assert liveness.is_live(BROKER, 18)
    assert liveness.is_proven(BROKER)


def test_should_count_a_new_incarnation_as_a_change() -> None:
    liveness = watching(lease(1))
    liveness.observe(lease(1, incarnation=2), 9)
    assert liveness.is_live(BROKER, 18)


def test_should_be_proven_at_once_when_its_lease_appears_while_we_look() -> None:
    liveness = watching()
    liveness.observe(lease(1), 5)
    assert liveness.is_proven(BROKER)


def test_should_give_a_whole_lease_time_when_contact_was_lost() -> None:
    liveness = watching(lease(1))
    liveness.observe(lease(2), 5)
    liveness.restart(since_ms=8, now_ms=100)
    assert liveness.is_live(BROKER, 109)
    assert not liveness.is_proven(BROKER)
    liveness.observe_all([lease(3)], 101)
    assert not liveness.is_proven(BROKER), "it may have renewed just before it died, while we were away"
    liveness.observe(lease(4), 103)
    assert liveness.is_proven(BROKER)


def test_should_stay_lost_when_it_was_lost_before_contact_was() -> None:
    liveness = watching(lease(1))
    liveness.restart(since_ms=20, now_ms=100)
    assert not liveness.is_live(BROKER, 100)


def test_should_name_the_next_expiry_of_those_that_live() -> None:
    other = BrokerId(1)
    liveness = watching(lease(1), lease(1, broker=other))
    liveness.observe(lease(2, broker=other), 4)
    assert liveness.next_expiry_ms(0) == 10
    assert liveness.next_expiry_ms(10) == 14
    assert liveness.next_expiry_ms(14) is None


def test_should_know_when_any_lease_changed_last() -> None:
    assert Liveness().last_change_ms() == 0
    liveness = watching(lease(1), lease(1, broker=BrokerId(1)), at_ms=100)
    liveness.observe(lease(2), 200)
    liveness.observe(lease(1, broker=BrokerId(1)), 300)
    assert liveness.last_change_ms() == 200


def test_should_be_lost_at_once_when_its_process_has_died_and_until_its_lease_changes() -> None:
    liveness = watching(lease(1))
    liveness.died(BROKER, since_ms=0)
    assert not liveness.is_live(BROKER, 1)
    assert liveness.next_expiry_ms(1) is None
    liveness.observe_all([lease(1)], 2)
    assert not liveness.is_live(BROKER, 2), "reading the same state again is no sign of life"
    liveness.observe(lease(2), 3)
    assert liveness.is_live(BROKER, 3)


def test_should_stay_lost_when_contact_was_lost_meanwhile() -> None:
    liveness = watching(lease(1))
    liveness.died(BROKER, since_ms=0)
    liveness.restart(since_ms=1, now_ms=2)
    assert not liveness.is_live(BROKER, 2)


def test_should_not_take_a_life_for_dead_that_began_after_the_one_that_died_was_seen() -> None:
    liveness = watching(lease(1))
    liveness.observe(lease(2, incarnation=2), 5)
    liveness.observe(lease(3, incarnation=2), 6)
    liveness.died(BROKER, since_ms=4)
    assert liveness.is_live(BROKER, 6)
    liveness.died(BROKER, since_ms=5)
    assert not liveness.is_live(BROKER, 6)


def test_should_not_mind_the_death_of_a_broker_that_it_never_heard_of() -> None:
    liveness = watching()
    liveness.died(BROKER, since_ms=0)
    assert not liveness.is_live(BROKER, 0)
