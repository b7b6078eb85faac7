"""Heartbeats without a wait, for members that would have waited."""

import pytest

from headrace.core.groups.requests import answer_pause_ms, heartbeat_without_waiting


def test_should_ask_for_an_answer_at_once() -> None:
    said = {"memberEpoch": 1, "owned": [], "waitMs": 3_000}
    assert heartbeat_without_waiting(said) == ({**said, "waitMs": 0}, 3_000)
    assert said["waitMs"] == 3_000


@pytest.mark.parametrize(
    ("said", "wait_ms"),
    [({}, 0), ({"waitMs": "3"}, 0), ({"waitMs": True}, 0), ({"waitMs": -1}, 0), ({"waitMs": 1 << 40}, 3_000)],
)
def test_should_believe_no_wait_that_is_none(said: dict[str, object], wait_ms: int) -> None:
    assert heartbeat_without_waiting(said) == ({**said, "waitMs": 0}, wait_ms)


def test_should_leave_to_the_coordinator_what_is_no_heartbeat() -> None:
    assert heartbeat_without_waiting([1]) == ([1], 0)


@pytest.mark.parametrize(
    ("answer", "kept_ms"),
    [
        ({"assignment": None, "heartbeatMs": 3_000}, 2_000),
        ({"assignment": None, "heartbeatMs": 250}, 250),
        ({"assignment": [], "heartbeatMs": 3_000}, 0),
        ({"code": "UnknownMember"}, 0),
        ([], 0),
    ],
)
def test_should_keep_an_answer_without_news(answer: object, kept_ms: int) -> None:
    assert answer_pause_ms(answer, 2_000) == kept_ms
