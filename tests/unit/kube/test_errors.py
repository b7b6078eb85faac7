import json

import pytest

from headrace.kube.errors import (
    AlreadyExistsError,
    ApiBusyError,
    ApiError,
    ApiUnavailableError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidObjectError,
    NotFoundError,
    error_of,
)


def answer(message: str, reason: str = "") -> bytes:
    return json.dumps({"kind": "Status", "message": message, "reason": reason}).encode()


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        (400, "BadRequest", InvalidObjectError),
        (401, "Unauthorized", ForbiddenError),
        (403, "Forbidden", ForbiddenError),
        (404, "NotFound", NotFoundError),
        (409, "Conflict", ConflictError),
        (409, "AlreadyExists", AlreadyExistsError),
        (410, "Expired", GoneError),
        (422, "Invalid", InvalidObjectError),
        (429, "TooManyRequests", ApiBusyError),
        (500, "InternalError", ApiBusyError),
        (503, "ServiceUnavailable", ApiBusyError),
        (418, "Teapot", ApiError),
    ],
)
def test_should_raise_the_class_that_the_status_means(status: int, reason: str, expected: type[ApiError]) -> None:
    error = error_of(status, answer("what happened", reason), "GET /x")
    assert type(error) is expected
    assert error.reason == reason
    assert "what happened" in str(error)


def test_should_keep_the_servers_own_sentence_when_an_object_is_invalid() -> None:
    sentence = "partitions can grow, never shrink"
    assert str(error_of(422, answer(sentence), "PATCH /x")) == sentence


def test_should_say_what_was_asked_when_the_server_is_in_trouble() -> None:
    assert str(error_of(500, answer("etcd is away"), "GET /x")) == "GET /x: etcd is away"


@pytest.mark.parametrize("body", [b"", b"<html>bad gateway</html>", b"[]", b"null"])
def test_should_make_do_with_an_answer_that_is_no_status(body: bytes) -> None:
    error = error_of(502, body, "GET /x")
    assert isinstance(error, ApiUnavailableError)
    assert str(error) == "GET /x: HTTP 502"


def test_should_tell_callers_what_may_be_tried_again() -> None:
    assert ApiUnavailableError("x").retriable
    assert ConflictError("x").retriable
    assert not InvalidObjectError("x").retriable
