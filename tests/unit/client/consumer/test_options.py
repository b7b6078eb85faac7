"""What a consumer is told about its group is checked before anybody is asked."""

from dataclasses import replace
from typing import Any

import pytest

from headrace.client.consumer.options import Callbacks, GroupArguments, GroupOptions, group_options
from headrace.core.errors import LocalError
from headrace.core.groups.assignment import Subscription


def test_should_have_no_group_where_none_is_named() -> None:
    assert group_options(["flights"], None, GroupArguments()) is None


def test_should_take_part_with_the_defaults() -> None:
    assert group_options(["flights"], "billing", GroupArguments()) == GroupOptions(
        "billing", Subscription(("flights",)), "", 5_000, 300_000, Callbacks()
    )


def test_should_take_what_is_given() -> None:
    def on_assigned(partitions: Any) -> None: ...
    def on_revoked(partitions: Any) -> None: ...
    def on_lost(partitions: Any) -> None: ...

    given = GroupArguments("x.*", "pod-0", auto_commit=False, max_poll_interval_ms=1_000)
    given = replace(given, on_assigned=on_assigned, on_revoked=on_revoked, on_lost=on_lost)
    options = group_options([], "billing", given)
    assert options == GroupOptions(
        "billing", Subscription((), "x.*"), "pod-0", None, 1_000, Callbacks(on_assigned, on_revoked, on_lost)
    )
    assert options.callbacks.of_lost() is on_lost
    assert Callbacks(revoked=on_revoked).of_lost() is on_revoked


@pytest.mark.parametrize(
    ("topics", "group", "given", "error", "sentence"),
    [
        (["flights"], None, GroupArguments(pattern="x.*"), LocalError, "pattern is given without a group: add group="),
        (["flights"], None, GroupArguments(instance_id="a"), LocalError, "instance_id is given without a group"),
        (["flights"], None, GroupArguments(on_lost=print), LocalError, "on_lost is given without a group"),
        (["flights"], 7, GroupArguments(), TypeError, "group is int, not str: give the group's name"),
        (["flights"], "My Group", GroupArguments(), LocalError, "'My Group' cannot name a group.*try my-group"),
        ([], "billing", GroupArguments(), LocalError, "no topic is given: .* or pattern="),
        (["my_topic"], "billing", GroupArguments(), LocalError, "'my_topic' cannot name a topic"),
        ([], "billing", GroupArguments("(x"), LocalError, r"\(x"),
        (
            ["flights"],
            "billing",
            GroupArguments(instance_id=""),
            LocalError,
            "instance_id has 0 characters: give 1 to 253",
        ),
        (
            ["flights"],
            "billing",
            GroupArguments(auto_commit_interval_ms=0),
            LocalError,
            "auto_commit_interval_ms is 0: it",
        ),
        (
            ["flights"],
            "billing",
            GroupArguments(max_poll_interval_ms=9),
            LocalError,
            "max_poll_interval_ms is 9: it must",
        ),
    ],
)
def test_should_say_what_is_wrong(
    topics: list[str], group: Any, given: GroupArguments, error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        group_options(topics, group, given)
