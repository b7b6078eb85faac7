"""What a consumer is told about its group is checked before anybody is asked."""

from dataclasses import replace
from typing import Any

import pytest

from headrace.client.consumer.options import Attending, Callbacks, GroupOptions, group_options
from headrace.core.errors import LocalError
from headrace.core.groups.assignment import Subscription


def test_should_have_no_group_where_none_is_named() -> None:
    assert group_options(["flights"], None, Attending()) is None


def test_should_take_part_with_the_defaults() -> None:
    assert group_options(["flights"], "billing", Attending()) == GroupOptions(
        "billing", Subscription(("flights",)), "", 5_000, 300_000, Callbacks()
    )


def test_should_take_what_is_given() -> None:
    def on_assigned(partitions: Any) -> None: ...
    def on_revoked(partitions: Any) -> None: ...
    def on_lost(partitions: Any) -> None: ...

    given = Attending("x.*", "pod-0", auto_commit=False, max_poll_interval_ms=1_000)
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
        (["flights"], None, Attending(pattern="x.*"), LocalError, "pattern is given without a group: add group="),
        (["flights"], None, Attending(instance_id="a"), LocalError, "instance_id is given without a group"),
        (["flights"], None, Attending(on_lost=print), LocalError, "on_lost is given without a group"),
        (["flights"], 7, Attending(), TypeError, "group is int, not str: give the group's name"),
        (["flights"], "My Group", Attending(), LocalError, "'My Group' cannot name a group.*try my-group"),
        ([], "billing", Attending(), LocalError, "no topic is given: .* or pattern="),
        (["my_topic"], "billing", Attending(), LocalError, "'my_topic' cannot name a topic"),
        ([], "billing", Attending("(x"), LocalError, r"\(x"),
        (["flights"], "billing", Attending(instance_id=""), LocalError, "instance_id has 0 characters: give 1 to 253"),
        (["flights"], "billing", Attending(auto_commit_interval_ms=0), LocalError, "auto_commit_interval_ms is 0: it"),
        (["flights"], "billing", Attending(max_poll_interval_ms=9), LocalError, "max_poll_interval_ms is 9: it must"),
    ],
)
def test_should_say_what_is_wrong(
    topics: list[str], group: Any, given: Attending, error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        group_options(topics, group, given)
