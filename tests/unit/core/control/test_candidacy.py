"""Two operators and one Lease, with clocks of their own."""

import pytest

from headrace.core.control.liveness import Candidacy
from headrace.core.limits import OPERATOR_LEASE_DURATION_MS, OPERATOR_LEASE_RENEW_MS
from headrace.core.resources.lease import OperatorLease, operator_lease_name
from headrace.core.resources.metadata import Metadata

VACANT = OperatorLease(Metadata(operator_lease_name("headrace"), "default"))
DURATION, RENEW = OPERATOR_LEASE_DURATION_MS, OPERATOR_LEASE_RENEW_MS


def held(by: str = "b", renewed: str = "1") -> OperatorLease:
    return VACANT.held_by(by, renewed)


def watching(lease: OperatorLease | None, now_ms: int = 100) -> Candidacy:
    candidacy = Candidacy("a", VACANT)
    candidacy.observe(lease, now_ms)
    return candidacy


def acting(asked_ms: int = 100) -> Candidacy:
    candidacy = watching(None)
    assert candidacy.won(candidacy.bid("1"), asked_ms, asked_ms + 5)
    return candidacy


def test_should_bid_at_once_where_nobody_holds_it() -> None:
    for vacant in (None, VACANT, held().vacated()):
        candidacy = watching(vacant)
        assert candidacy.due_ms() <= 100
        assert not candidacy.acts(100), "before its write has landed"
        assert candidacy.bid("2").holder == "a"


def test_should_bid_at_once_when_an_earlier_life_of_it_holds_it() -> None:
    candidacy = watching(held("a"))
    assert candidacy.due_ms() <= 100
    assert not candidacy.acts(100)


def test_should_act_for_the_duration_from_when_its_write_was_sent() -> None:
    candidacy = acting(asked_ms=100)
    assert candidacy.acts(100 + DURATION - 1)
    assert not candidacy.acts(100 + DURATION)
    assert candidacy.due_ms() == 100 + RENEW
    assert candidacy.holder == "a"


def test_should_wait_for_the_duration_from_when_it_saw_the_last_renewal() -> None:
    candidacy = watching(held(renewed="1"))
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
    candidacy = watching(None)
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
