"""Errors cross HTTP as problem documents and come out as the class that was raised; names print as people write."""

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core import errors
from headrace.core.errors import (
    BrokerUnreachableError,
    HeadraceError,
    NotLeaderError,
    RemoteError,
    from_problem,
    to_problem,
)
from headrace.core.types import BrokerId, Incarnation, PartitionId, PartitionKey, Seat, TopicName, TopicUid


def every_error() -> Iterator[type[HeadraceError]]:
    """All error classes that the module defines."""
    for name in sorted(vars(errors)):
        candidate = getattr(errors, name)
        if isinstance(candidate, type) and issubclass(candidate, HeadraceError):
            yield candidate


PUBLIC_ERRORS = [error for error in every_error() if error is not HeadraceError]


@pytest.mark.parametrize("raised", PUBLIC_ERRORS)
def test_should_come_back_as_the_class_that_was_raised(raised: type[HeadraceError]) -> None:
    document = json.loads(json.dumps(to_problem(raised("what happened", leader=2, url="http://b2"))))
    error = from_problem(document, raised.status)
    assert type(error) is raised
    assert (error.message, str(error)) == ("what happened", "what happened")
    assert error.details == {"leader": 2, "url": "http://b2"}
    assert (error.code, error.status, error.retriable) == (raised.code, raised.status, raised.retriable)


def test_should_give_every_error_a_code_of_its_own() -> None:
    assert len({error.code for error in PUBLIC_ERRORS}) == len(PUBLIC_ERRORS)


def test_should_look_as_rfc_9457_and_the_protocol_say() -> None:
    assert to_problem(NotLeaderError("broker 1 does not lead flights/3; broker 2 does", leader=2)) == {
        "type": "https://headrace.io/problems/NotLeader",
        "title": "Not leader",
        "status": 421,
        "code": "NotLeader",
        "detail": "broker 1 does not lead flights/3; broker 2 does",
        "retriable": True,
        "leader": 2,
    }


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"code": "FromTheFuture", "detail": "news"}, "HTTP 599: news"),
        ({"title": "Only a title"}, "HTTP 599: Only a title"),
        ({}, "HTTP 599: HTTP 599"),
    ],
)
def test_should_keep_the_status_in_words_when_the_code_is_not_known(document: dict[str, str], message: str) -> None:
    error = from_problem({**document, "leader": 2, "not an identifier": 1}, 599)
    assert type(error) is RemoteError
    assert error.message == message
    assert error.details == {"leader": 2}


@pytest.mark.parametrize(
    ("status", "expected"), [(503, BrokerUnreachableError), (429, BrokerUnreachableError), (403, RemoteError)]
)
def test_should_take_the_answer_of_a_proxy_between_for_a_broker_that_is_away(
    status: int, expected: type[HeadraceError]
) -> None:
    error = from_problem({"kind": "Status", "message": "no endpoints available", "code": status}, status)
    assert type(error) is expected
    assert error.message == (
        f"the Kubernetes API server, which stands between, says HTTP {status}: no endpoints available"
    )


@given(
    document=st.dictionaries(
        st.sampled_from(["type", "title", "status", "code", "detail", "message", "self", "leader"])
        | st.text(max_size=4),
        st.none() | st.integers() | st.text(max_size=4) | st.lists(st.integers(), max_size=2),
    )
)
def test_should_make_an_error_of_any_object(document: dict[str, object]) -> None:
    assert isinstance(from_problem(document, 500), HeadraceError)


def test_should_write_names_as_people_do() -> None:
    assert str(TopicName("default", "flights")) == "default/flights"
    assert str(PartitionKey(TopicUid("0f6c"), PartitionId(3))) == "0f6c/3"
    assert str(Seat(BrokerId(2), Incarnation(7))) == "2@7"
    assert sorted([TopicName("b", "a"), TopicName("a", "b")]) == [TopicName("a", "b"), TopicName("b", "a")]
