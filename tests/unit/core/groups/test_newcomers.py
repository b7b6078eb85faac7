"""Made-up names of groups are objects of the cluster's API: one client makes so many, and no more."""

import pytest

from headrace.core.errors import ThrottledError
from headrace.core.groups.publishing import GROUPS_NEW_CLIENTS_MAX, Newcomers


def test_should_refuse_one_new_group_too_many_and_take_it_later() -> None:
    newcomers = Newcomers(burst=3, interval_ms=100)
    for _ in range(3):
        newcomers.take("10.0.0.1", 1_000)
    with pytest.raises(
        ThrottledError, match=r"10\.0\.0\.1 has made 3 new groups in a row; the next is taken in 0\.1 s"
    ):
        newcomers.take("10.0.0.1", 1_000)
    newcomers.take("10.0.0.2", 1_000)
    newcomers.take("10.0.0.1", 1_100)
    with pytest.raises(ThrottledError) as refused:
        newcomers.take("10.0.0.1", 1_150)
    assert refused.value.details["retryAfterMs"] == 50
    for _ in range(3):
        newcomers.take("10.0.0.1", 10_000)


def test_should_never_refuse_a_broker_that_asks_for_itself() -> None:
    newcomers = Newcomers(burst=1, interval_ms=100)
    for _ in range(10):
        newcomers.take(None, 0)
    assert len(newcomers) == 0


def test_should_remember_so_many_clients_and_no_more() -> None:
    newcomers = Newcomers(burst=2, interval_ms=1_000)
    for number in range(GROUPS_NEW_CLIENTS_MAX):
        newcomers.take(f"client {number}", number)
    newcomers.take("another", 500)
    assert len(newcomers) == GROUPS_NEW_CLIENTS_MAX, "the first is nearest to having earned what it took"
    newcomers.take("client 0", 500)
    newcomers.take("later", 1_000_000)
    assert len(newcomers) == 1
