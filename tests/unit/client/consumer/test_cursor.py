"""One fetch a partition, positions that only the reader moves, answers of the past never read."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.consumer.cursor import Ask, FetchPlan
from headrace.client.record import TopicPartition
from headrace.client.transport.retry import GiveUp, RetryPolicy, Trouble, TryAgain
from headrace.core.errors import NotLeaderError, OffsetOutOfRangeError
from headrace.core.limits import FETCH_LONG_POLL_MS

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)


def plan(**positions: int) -> FetchPlan:
    return FetchPlan(RetryPolicy(timeout_ms=10_000), {P0: positions.get("p0", 0), P1: positions.get("p1", 0)})


def offsets(asks: list[Ask]) -> dict[int, int]:
    return {ask.cursor.partition.partition: ask.offset for ask in asks}


def test_should_ask_each_partition_once() -> None:
    fetches = plan(p0=5, p1=9)
    assert offsets(fetches.due(0)) == {0: 5, 1: 9}
    assert fetches.due(0) == []


def test_should_ask_ahead_only_once_the_answer_is_being_read() -> None:
    fetches = plan()
    first = fetches.due(0)[0]
    assert fetches.answered(first, 100)
    assert fetches.due(0) == []
    first.cursor.unread = False
    assert offsets(fetches.due(0)) == {0: 100}
    assert first.cursor.position == 0


def test_should_ask_again_at_once_when_there_was_nothing_new() -> None:
    fetches = plan()
    first = fetches.due(0)[0]
    assert fetches.answered(first, 0)
    first.cursor.unread = False
    first.cursor.read_to(0)
    assert offsets(fetches.due(0)) == {0: 0}


def test_should_skip_what_compaction_left_out_when_an_answer_is_read() -> None:
    fetches = plan()
    first = fetches.due(0)[0]
    fetches.end_at({P0: 40, P1: 0})
    fetches.answered(first, 40)
    first.cursor.read_to(40)
    assert first.cursor.position == 40
    assert fetches.done


def test_should_fetch_again_what_lies_beyond_the_end_when_it_is_wanted_later() -> None:
    fetches = plan()
    first = fetches.due(0)[0]
    fetches.end_at({P0: 40, P1: 0})
    fetches.answered(first, 100)
    first.cursor.read_to(100)
    assert fetches.done
    fetches.end_at(None)
    assert offsets(fetches.due(0)) == {0: 40}


def test_should_have_nothing_more_to_give_when_the_rest_is_paused() -> None:
    fetches = plan()
    for cursor in fetches.cursors.values():
        cursor.paused = True
    assert fetches.done


def test_should_drop_the_answer_when_the_reader_went_elsewhere() -> None:
    fetches = plan()
    first = fetches.due(0)[0]
    first.cursor.move(50)
    assert not fetches.answered(first, 100)
    assert fetches.failed(first, NotLeaderError("no"), 0, Random(1)) is None
    assert offsets(fetches.due(0)) == {0: 50}


def test_should_not_ask_for_a_paused_partition_until_it_is_resumed() -> None:
    fetches = plan()
    fetches.cursors[P0].paused = True
    assert offsets(fetches.due(0)) == {1: 0}
    fetches.cursors[P0].paused = False
    assert offsets(fetches.due(0)) == {0: 0}


def test_should_wait_before_it_asks_again_when_a_fetch_failed() -> None:
    fetches = plan()
    first, second = fetches.due(0)
    decision = fetches.failed(first, NotLeaderError("no"), 1_000, Random(1))
    assert isinstance(decision, TryAgain)
    assert decision.refresh
    assert fetches.next_due_ms() == decision.at_ms
    assert fetches.due(decision.at_ms - 1) == []
    assert offsets(fetches.due(decision.at_ms)) == {0: 0}
    fetches.answered(second, 5)
    assert fetches.next_due_ms() is None


def test_should_give_up_when_it_fails_for_too_long() -> None:
    fetches, now_ms = plan(), 0
    random = Random(1)
    while True:
        (ask, *_) = fetches.due(now_ms)
        decision = fetches.failed(ask, NotLeaderError("no leader"), now_ms, random)
        if isinstance(decision, GiveUp):
            break
        assert isinstance(decision, TryAgain)
        now_ms = decision.at_ms
    assert 8_000 < now_ms <= 10_000
    assert "gave up on reading flights/0 after" in decision.error.message
    assert offsets(fetches.due(now_ms)) == {0: 0}, "the reader may go on after the error"


def test_should_give_up_at_once_when_the_offset_is_gone() -> None:
    fetches = plan()
    error = OffsetOutOfRangeError("the log starts at 1000")
    assert fetches.failed(fetches.due(0)[0], error, 0, Random(1)) == GiveUp(error)


def test_should_end_at_the_offsets_that_were_given() -> None:
    fetches = plan(p0=10, p1=0)
    fetches.end_at({P0: 10, P1: 3})
    assert offsets(fetches.due(0)) == {1: 0}
    fetches.cursors[P1].move(3)
    assert fetches.due(0) == []
    assert fetches.done


def test_should_never_end_when_it_follows() -> None:
    fetches = plan(p0=10, p1=0)
    fetches.end_at(None)
    assert not fetches.done


@given(st.data())
def test_should_read_every_offset_once_and_in_order_whatever_happens(data: st.DataObject) -> None:
    log_end, fetches, random = 30, plan(), Random(1)
    fetches.end_at({P0: log_end, P1: 0})
    cursor, read, now_ms, expected = fetches.cursors[P0], list[int](), 0, 0
    asks: list[Ask] = []
    while not fetches.done:
        asks += fetches.due(now_ms)
        if asks and data.draw(st.integers(0, 5), label="seek at 5") == 5:
            expected = data.draw(st.integers(0, log_end), label="to")
            read.clear()
            cursor.move(expected)
            continue
        if not asks:
            now_ms = fetches.next_due_ms() or now_ms
            continue
        ask = asks.pop(data.draw(st.integers(0, len(asks) - 1), label="which answer comes"))
        if data.draw(st.integers(0, 3), label="fails at 3") == 3:
            fetches.failed(ask, NotLeaderError("no"), now_ms, random)
            continue
        next_offset = min(log_end, ask.offset + data.draw(st.sampled_from([6, 3, 1, 0]), label="records"))
        if fetches.answered(ask, next_offset):
            cursor.unread = False
            read += range(cursor.position, next_offset)
            cursor.read_to(next_offset)
    assert read == list(range(expected, log_end))


def test_should_tell_what_fails_but_not_of_waits_for_new_records(caplog: pytest.LogCaptureFixture) -> None:
    fetches = FetchPlan(RetryPolicy(10_000, trouble=Trouble()), {P0: 0})
    (first,) = fetches.due(0)
    error = NotLeaderError("broker 2 leads")
    assert isinstance(fetches.failed(first, error, FETCH_LONG_POLL_MS, Random(1)), TryAgain)
    assert caplog.messages == []
    (second,) = fetches.due(FETCH_LONG_POLL_MS + 1_000)
    assert isinstance(fetches.failed(second, error, FETCH_LONG_POLL_MS + 1_001, Random(1)), TryAgain)
    assert caplog.messages == ["reading flights/0: broker 2 leads; trying again"]


def test_should_end_a_reading_that_has_ends_before_partitions_that_came_later() -> None:
    fetches = plan()
    fetches.end_at({P0: 0, P1: 0})
    assert fetches.done
    later = TopicPartition("flights", 2)
    fetches.add(later, 5)
    fetches.add(later, 7)
    assert fetches.done
    fetches.end_at(None)
    assert offsets(fetches.due(0)) == {0: 0, 1: 0, 2: 5}
