"""A topic's name is a DNS label; whoever has another is told one that would do."""

import pytest

from headrace.core.types import group_name_problem, namespace_problem, topic_name_problem


@pytest.mark.parametrize("name", ["orders", "a", "a-1", "0", "x" * 63])
def test_should_take_dns_labels(name: str) -> None:
    assert topic_name_problem(name) is None


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [("my_topic", "my-topic"), ("Orders", "orders"), ("a.b", "a-b"), ("-a-", "a"), ("x" * 64, "x" * 63), ("Ünï", "n")],
)
def test_should_suggest_a_name_when_it_is_no_dns_label(name: str, suggestion: str) -> None:
    problem = topic_name_problem(name)
    assert problem is not None
    assert "is a DNS label" in problem
    assert problem.endswith(f"; try {suggestion}")


def test_should_suggest_nothing_when_nothing_is_left() -> None:
    assert str(topic_name_problem("___")).endswith("at most 63 characters")


def test_should_say_what_cannot_name_a_group() -> None:
    assert group_name_problem("billing") is None
    assert namespace_problem("lab") is None
    assert str(namespace_problem("The_Lab")).startswith("'The_Lab' cannot name a namespace")
    assert str(group_name_problem("My Billing")).startswith("'My Billing' cannot name a group")
