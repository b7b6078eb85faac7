"""A reading without `follow` ends only once it is known that none of its topics is about to be shared out."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.client.groups.attendance import Attendance
from headrace.core.errors import BrokerUnreachableError, HeadraceError, UnknownTopicError


def attendance(answer: HeadraceError | None) -> Attendance:
    """Of a member in a stable group that shares out nothing; brokers answer so when they are asked for its topic."""

    def layout_once(topic: str) -> object:
        if answer is not None:
            raise answer
        return object()

    parts: dict[str, Any] = {
        "seat": SimpleNamespace(missing=lambda _: ["flights"], silent=lambda *_: (False, [])),
        "_changed": nullcontext(),
        "_brokers": SimpleNamespace(layout_once=layout_once),
        "_coordinator": SimpleNamespace(description=object),
    }
    member = Attendance.__new__(Attendance)
    member.__dict__.update(parts)
    return member


@pytest.mark.parametrize(
    ("answer", "settled"),
    [
        (UnknownTopicError("topic default/flights is not there"), True),
        (BrokerUnreachableError("no broker answers"), False),
        (None, False),
    ],
    ids=["not-there", "nobody-answers", "there"],
)
def test_should_be_settled_without_a_topic_only_where_brokers_say_that_it_is_not_there(
    answer: HeadraceError | None, settled: bool
) -> None:
    assert attendance(answer).is_settled() is settled
