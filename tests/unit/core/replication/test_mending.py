"""When a damaged log may be cut: only where others have all of it."""

import pytest

from headrace.core.replication.draining import others_have_it
from headrace.core.types import Seat
from tests.support.partition_sets import partition_state, seat

A, B, C = seat(0), seat(1), seat(2)


@pytest.mark.parametrize(
    ("isr", "ready", "least", "may"),
    [
        ((A, B, C), {A, B, C}, 2, True),
        ((A, B, C), {A, B}, 2, False),
        ((A, B), {A, B}, 2, False),
        ((A, B), {A, B}, 1, True),
        ((B, C), {B, C}, 2, True),
        ((A,), {A, B, C}, 1, False),
        ((), {A, B, C}, 1, False),
        ((A, B, C), {A, B, C}, 3, True),
        ((A, B), {A, B, C}, 3, False),
    ],
)
def test_should_do_without_it_when_as_many_others_have_it_as_must_be_in_sync(
    isr: tuple[Seat, ...], ready: set[Seat], least: int, may: bool
) -> None:
    state = partition_state(leader=A, isr=isr, replicas=(A.broker, B.broker, C.broker))
    assert others_have_it(state, A, ready, least) is may


def test_should_never_cut_what_only_it_has() -> None:
    assert not others_have_it(partition_state(leader=A, isr=(A,), replicas=(A.broker,)), A, {A}, 1)


def test_should_not_count_an_earlier_life_as_another() -> None:
    state = partition_state(leader=B, isr=(A, B), replicas=(A.broker, B.broker))
    later = Seat(A.broker, type(A.incarnation)(A.incarnation + 1))
    assert not others_have_it(state, later, {A}, 1)
    assert others_have_it(state, later, {B}, 1)
