"""Who waits is told what fails: soon, not often, not once a partition; a stalled client is told from a slow one."""

import pytest

from headrace.client.clock import Watchdog
from headrace.client.transport.retry import TROUBLE_INTERVAL_MS, TROUBLE_SILENT_MS, TROUBLE_UNANSWERED_MS, Trouble
from headrace.core.limits import CLIENT_STALL_CHECK_MS

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
