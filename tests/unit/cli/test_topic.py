"""What `headrace topic create` says where there are fewer brokers than replicas by default."""

import pytest

from headrace.cli.topic import _few


@pytest.mark.parametrize(("brokers", "says"), [(1, "there is 1 broker, so each partition has 1 copy"), (2, "2 copies")])
def test_should_say_how_many_copies_there_are_and_how_to_get_more(brokers: int, says: str) -> None:
    said = _few("orders", brokers)
    assert says in said
    assert """kubectl patch topic orders --type merge -p '{"spec": {"replicas": 3}}'""" in said
