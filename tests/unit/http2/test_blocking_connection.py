"""Who reads from a blocking connection: its thread, or the one caller that waits."""

from headrace.http2.blocking_connection import H2_READS_BEFORE_CALLERS_READ, ReadingTurn


def callers_turn() -> ReadingTurn:
    """One in which a single caller has waited often enough."""
    turn = ReadingTurn()
    for _ in range(H2_READS_BEFORE_CALLERS_READ):
        assert not turn.come()
        turn.thread_read()
        turn.leave()
    turn.thread_checked()
    assert turn.is_callers
    return turn


def test_one_that_waits_alone_reads_for_itself() -> None:
    turn = callers_turn()
    assert turn.come()
    assert turn.is_caller_reading
    assert not turn.stop(was_served=True)
    turn.leave()
    assert turn.come(), "and the next time"


def test_the_thread_reads_where_several_wait() -> None:
    turn = ReadingTurn()
    turn.come()
    turn.come()
    for _ in range(2 * H2_READS_BEFORE_CALLERS_READ):
        turn.thread_read()
    assert not turn.is_callers


def test_the_thread_is_woken_when_another_waits_too() -> None:
    turn = callers_turn()
    assert turn.come()
    assert not turn.come(), "one reads already"
    assert turn.stop(was_served=True)
    assert not turn.is_callers


def test_the_thread_is_woken_when_what_is_waited_for_does_not_come() -> None:
    turn = callers_turn()
    assert turn.come()
    assert turn.stop(was_served=False)
    assert not turn.is_callers


def test_the_thread_takes_its_turn_back_where_nobody_reads() -> None:
    turn = callers_turn()
    turn.come()
    turn.stop(was_served=True)
    turn.leave()
    turn.thread_checked()
    assert turn.is_callers, "somebody has read since it looked"
    turn.thread_checked()
    assert not turn.is_callers


def test_the_thread_leaves_a_caller_that_reads_alone() -> None:
    turn = callers_turn()
    turn.come()
    turn.thread_checked()
    turn.thread_checked()
    assert turn.is_callers


def test_the_thread_is_woken_when_nobody_waits_for_what_is_sent() -> None:
    turn = callers_turn()
    assert not turn.sent(), "perhaps it is waited for"
    assert turn.sent()
    assert not turn.is_callers


def test_what_a_reader_sends_wakes_nobody() -> None:
    turn = callers_turn()
    turn.come()
    assert not turn.sent()
    assert not turn.sent()
