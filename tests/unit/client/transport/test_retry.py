"""Retries end in time, wait longer each time, and are only for errors that may pass."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.transport.retry import CLIENT_BACKOFF_MAX_MS, Failure, GiveUp, RetryPolicy, TryAgain, backoff_ms
from headrace.core.errors import (
    BatchTooLargeError,
    BrokerUnreachableError,
    HeadraceError,
    NotLeaderError,
    PartitionOfflineError,
    RequestTimedOutError,
    StaleTopicError,
    ThrottledError,
)
from headrace.core.limits import CLIENT_BACKOFF_MIN_MS

POLICY = RetryPolicy(timeout_ms=10_000)


def failure(error: HeadraceError, attempts: int = 1, since_ms: int = 0) -> Failure:
    return Failure("records for flights/3", error, attempts, since_ms, since_ms)


def test_should_give_up_at_once_when_the_error_will_not_pass() -> None:
    error = BatchTooLargeError("9 MiB is over 8 MiB")
    assert POLICY.decide(failure(error), 0, Random(1)) == GiveUp(error)


@pytest.mark.parametrize("error", [NotLeaderError("broker 2 leads"), BrokerUnreachableError("refused")])
def test_should_read_the_metadata_again_when_another_broker_may_lead(error: HeadraceError) -> None:
    decision = POLICY.decide(failure(error), 1_000, Random(1))
    assert isinstance(decision, TryAgain)
    assert decision.refresh
    assert 1_000 < decision.at_ms <= 1_000 + CLIENT_BACKOFF_MIN_MS


def test_should_keep_the_metadata_when_only_the_answer_was_late() -> None:
    decision = POLICY.decide(failure(RequestTimedOutError("no acknowledgement")), 0, Random(1))
    assert isinstance(decision, TryAgain)
    assert not decision.refresh


def test_should_say_what_was_tried_when_the_time_is_up() -> None:
    error = NotLeaderError("broker 2 leads", leader=2)

    decision = POLICY.decide(failure(error, attempts=7), 10_000, Random(1))

    assert isinstance(decision, GiveUp)
    assert isinstance(decision.error, NotLeaderError)
    assert decision.error.message == "gave up on records for flights/3 after 7 tries in 10.0 s: broker 2 leads"
    assert decision.error.details == {"leader": 2}


def test_should_wait_as_the_broker_says_when_it_is_throttling() -> None:
    decision = POLICY.decide(failure(ThrottledError("busy", retryAfterMs=4_000)), 0, Random(1))
    assert decision == TryAgain(4_000, refresh=False)


def test_should_retry_a_recreated_topic_when_the_policy_says_so() -> None:
    error = StaleTopicError("another uid")
    assert isinstance(POLICY.decide(failure(error), 0, Random(1)), GiveUp)
    for_producers = RetryPolicy(timeout_ms=10_000, also_retriable=(StaleTopicError,))
    assert isinstance(for_producers.decide(failure(error), 0, Random(1)), TryAgain)


@given(st.integers(1, 100), st.integers(0, 1 << 32))
def test_should_wait_within_bounds_whatever_the_attempt(attempts: int, seed: int) -> None:
    wait = backoff_ms(attempts, Random(seed))
    assert CLIENT_BACKOFF_MIN_MS // 2 <= wait <= CLIENT_BACKOFF_MAX_MS


def test_should_not_wait_for_a_broker_when_another_may_lead_by_then() -> None:
    told = PartitionOfflineError("nobody leads", retryAfterMs=60_000)
    decision = POLICY.decide(failure(told), 0, Random(1))
    assert isinstance(decision, TryAgain)
    assert decision.at_ms <= CLIENT_BACKOFF_MIN_MS
