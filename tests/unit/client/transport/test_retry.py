"""Retries end in time, wait longer each time, and are only for errors that may pass.

Who waits is told what fails: soon, not often, not once a partition; a stalled client is told from a slow one.
"""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.clock import Watchdog
from headrace.client.transport.retry import (
    CLIENT_BACKOFF_MAX_MS,
    TROUBLE_INTERVAL_MS,
    TROUBLE_SILENT_MS,
    TROUBLE_UNANSWERED_MS,
    Failure,
    GiveUp,
    RetryPolicy,
    Trouble,
    TryAgain,
    backoff_ms,
)
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
from headrace.core.limits import CLIENT_BACKOFF_MIN_MS, CLIENT_STALL_CHECK_MS

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


WHAT, WHY = "records for flights/3", "broker a:1 cannot be reached: Connection refused"
SAID = f"{WHAT}: {WHY}; trying again"


def test_should_say_nothing_of_what_passes_at_once() -> None:
    assert Trouble().notice(WHAT, WHY, 1_000, 1_000 + TROUBLE_SILENT_MS - 1) is None


def test_should_say_it_at_once_when_it_has_failed_for_long_and_then_now_and_then() -> None:
    trouble = Trouble()
    assert trouble.notice(WHAT, WHY, 0, 40_000) == SAID
    assert trouble.notice(WHAT, "something else", 0, 40_000 + TROUBLE_INTERVAL_MS - 1) is None
    assert trouble.notice(WHAT, WHY, 0, 40_000 + TROUBLE_INTERVAL_MS) == SAID


def test_should_say_one_reason_once_for_all_that_it_stops() -> None:
    trouble = Trouble()
    assert trouble.notice(WHAT, WHY, 0, 2_000) == SAID
    assert trouble.notice("records for flights/4", WHY, 0, 2_000) is None
    assert (
        trouble.notice("records for flights/4", "offline", 0, 2_000) == "records for flights/4: offline; trying again"
    )


def test_should_not_advise_what_is_being_done() -> None:
    assert (
        Trouble().notice(WHAT, "no leader just now; try again", 0, 2_000) == f"{WHAT}: no leader just now; trying again"
    )


def test_should_tell_of_a_request_that_has_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    trouble = Trouble()
    trouble.tell_unanswered(WHAT, 0, TROUBLE_UNANSWERED_MS - 1)
    assert caplog.messages == []
    trouble.tell_unanswered(WHAT, 0, TROUBLE_UNANSWERED_MS)
    trouble.tell_unanswered(WHAT, 0, TROUBLE_UNANSWERED_MS + 1_000)
    assert caplog.messages == [f"{WHAT}: no answer for 10 s; still waiting"]


def look(watchdog: Watchdog, until_ms: int, *, start_ms: int = 0, should_move: bool = True) -> bool:
    times = range(start_ms, until_ms + 1, CLIENT_STALL_CHECK_MS)
    return [watchdog.is_stalled(now_ms, should_move=should_move) for now_ms in times][-1]


def test_should_bark_when_nothing_has_moved_for_too_long() -> None:
    watchdog = Watchdog(10_000)
    assert not look(watchdog, 10_000)
    assert look(watchdog, 12_000, start_ms=11_000)
    assert watchdog.still_s == "12 s"


def test_should_be_calm_when_something_moves_or_nothing_has_to() -> None:
    watchdog = Watchdog(10_000)
    assert not look(watchdog, 9_000)
    watchdog.moved()
    assert not look(watchdog, 18_000, start_ms=10_000)
    assert not look(watchdog, 60_000, start_ms=19_000, should_move=False)
    assert not look(watchdog, 69_000, start_ms=61_000)


def test_should_not_count_the_time_in_which_the_process_was_stopped() -> None:
    watchdog = Watchdog(10_000)
    assert not look(watchdog, 5_000)
    assert not watchdog.is_stalled(3_600_000, should_move=True)
