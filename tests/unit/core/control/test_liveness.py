"""Two operators and one Lease, with clocks of their own.

Pods tell of a broker's death before its Lease does.
"""

import pytest

from headrace.core.control.liveness import Candidacy, Liveness, PodDeaths
from headrace.core.limits import OPERATOR_LEASE_DURATION_MS, OPERATOR_LEASE_RENEW_MS
from headrace.core.resources.kubernetes_objects import BrokerPod
from headrace.core.resources.lease import BrokerLease, OperatorLease, operator_lease_name
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


VACANT = OperatorLease(Metadata(operator_lease_name("headrace"), "default"))
DURATION, RENEW = OPERATOR_LEASE_DURATION_MS, OPERATOR_LEASE_RENEW_MS


def held(by: str = "b", renewed: str = "1") -> OperatorLease:
    return VACANT.held_by(by, renewed)


def candidacy_after(lease: OperatorLease | None, now_ms: int = 100) -> Candidacy:
    candidacy = Candidacy("a", VACANT)
    candidacy.observe(lease, now_ms)
    return candidacy


def acting(asked_ms: int = 100) -> Candidacy:
    candidacy = candidacy_after(None)
    assert candidacy.won(candidacy.bid("1"), asked_ms, asked_ms + 5)
    return candidacy


def test_should_bid_at_once_where_nobody_holds_it() -> None:
    for vacant in (None, VACANT, held().vacated()):
        candidacy = candidacy_after(vacant)
        assert candidacy.due_ms() <= 100
        assert not candidacy.acts(100), "before its write has landed"
        assert candidacy.bid("2").holder == "a"


def test_should_bid_at_once_when_an_earlier_life_of_it_holds_it() -> None:
    candidacy = candidacy_after(held("a"))
    assert candidacy.due_ms() <= 100
    assert not candidacy.acts(100)


def test_should_act_for_the_duration_from_when_its_write_was_sent() -> None:
    candidacy = acting(asked_ms=100)
    assert candidacy.acts(100 + DURATION - 1)
    assert not candidacy.acts(100 + DURATION)
    assert candidacy.due_ms() == 100 + RENEW
    assert candidacy.holder == "a"


def test_should_wait_for_the_duration_from_when_it_saw_the_last_renewal() -> None:
    candidacy = candidacy_after(held(renewed="1"))
    candidacy.observe(held(renewed="1"), 200)
    assert candidacy.due_ms() == 100 + DURATION
    candidacy.observe(held(renewed="2"), 300)
    assert candidacy.due_ms() == 300 + DURATION
    assert not candidacy.acts(300)


def test_should_stand_by_as_soon_as_another_holds_it() -> None:
    candidacy = acting()
    candidacy.observe(held(), 200)
    assert not candidacy.acts(200)
    assert candidacy.holder == "b"


def test_should_go_on_when_it_reads_what_it_wrote() -> None:
    candidacy = acting()
    candidacy.observe(held("a"), 200)
    assert candidacy.acts(200)


def test_should_go_on_when_it_renews_in_time() -> None:
    candidacy = acting(asked_ms=100)
    assert not candidacy.won(candidacy.bid("2"), 100 + RENEW, now_ms=99 + DURATION)
    assert candidacy.acts(99 + RENEW + DURATION)


def test_should_begin_another_turn_when_the_last_one_ran_out_while_it_renewed() -> None:
    """As after standing still: nobody had looked, and who asked meanwhile whether it acts was told no."""
    candidacy = acting(asked_ms=100)
    assert candidacy.won(candidacy.bid("2"), 99 + DURATION, now_ms=100 + DURATION)


def test_should_begin_no_turn_when_its_write_lands_after_the_lease_has_run_out() -> None:
    candidacy = candidacy_after(None)
    assert not candidacy.won(candidacy.bid("1"), 100, now_ms=100 + DURATION)
    assert candidacy.won(candidacy.bid("2"), 100 + DURATION, now_ms=101 + DURATION)


def test_should_act_no_more_once_it_has_resigned() -> None:
    candidacy = acting()
    assert candidacy.resign() == held("a", "1").vacated()
    assert not candidacy.acts(100)


def test_should_resign_upon_a_renewal_that_landed_unheard_and_not_upon_another_holder() -> None:
    candidacy = acting()
    candidacy.observe(held("a", "2"), 200)
    assert candidacy.resign() == held("a", "2").vacated()
    candidacy.observe(held("b", "3"), 300)
    assert candidacy.resign() is None


def test_should_count_how_often_it_went_to_another_holder() -> None:
    first = VACANT.held_by("a", "1")
    assert (first.acquire_time, first.renew_time, first.transitions) == ("1", "1", 0)
    renewed = first.held_by("a", "2")
    assert (renewed.acquire_time, renewed.renew_time, renewed.transitions) == ("1", "2", 0)
    taken = renewed.vacated().held_by("b", "3")
    assert (taken.acquire_time, taken.renew_time, taken.transitions) == ("3", "3", 1)


@pytest.mark.parametrize("lease", [held(), held().vacated()])
def test_should_read_what_it_wrote(lease: OperatorLease) -> None:
    assert OperatorLease.parse(lease.to_object()) == lease
    assert lease.to_object()["spec"]["leaseDurationSeconds"] == DURATION // 1000


def pod(broker: int = 0, *, uid: str = "a", restarts: int = 0, running: bool = True) -> BrokerPod:
    return BrokerPod("headrace", BrokerId(broker), uid, restarts, running)


def deaths_at(*looks: tuple[BrokerPod, ...]) -> list[dict[int, int]]:
    """What each look finds; looks are at 10, 20 and so on."""
    deaths = PodDeaths()
    found = [deaths.observe(look, 10 * number) for number, look in enumerate(looks, start=1)]
    return [{int(broker): since_ms for broker, since_ms in each.items()} for each in found]


def test_should_say_nothing_while_the_same_pods_run() -> None:
    assert deaths_at((), (pod(0), pod(1)), (pod(0), pod(1))) == [{}, {}, {}]


def test_should_call_who_ran_at_the_last_look_dead() -> None:
    before = (pod(),)
    for after in [(), (pod(uid="b"),), (pod(restarts=1),), (pod(running=False),)]:
        assert deaths_at(before, before, after) == [{}, {}, {0: 20}]


def test_should_say_it_once() -> None:
    assert deaths_at((pod(),), (), ()) == [{}, {0: 10}, {}]
    dead = (pod(running=False),)
    assert deaths_at((pod(),), dead, dead) == [{}, {0: 10}, {}]


def test_should_take_who_does_not_run_at_the_first_look_for_dead_as_of_now() -> None:
    assert deaths_at((pod(running=False), pod(1))) == [{0: 10}]


def test_should_leave_it_to_the_lease_when_a_container_runs_again() -> None:
    assert deaths_at((pod(),), (pod(running=False),), (pod(restarts=1),)) == [{}, {0: 10}, {}]
    assert deaths_at((pod(),), (), (pod(uid="b"),)) == [{}, {0: 10}, {}]


def test_should_notice_each_death_of_a_container_that_crashes_again_and_again() -> None:
    crashes = ((pod(),), (pod(running=False),), (pod(restarts=1, running=False),))
    assert deaths_at(*crashes) == [{}, {0: 10}, {0: 20}]
