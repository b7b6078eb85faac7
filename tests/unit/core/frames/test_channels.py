"""Answers in order, one failure, one last word: against a model, and case by case."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import BrokenSessionError, HeadraceError, NotLeaderError, NotReadyError, ThrottledError
from headrace.core.frames.channels import OpenChannels
from headrace.core.frames.frame import STREAM
from headrace.core.frames.session_messages import (
    NO_SEQUENCE,
    SESSION_PRODUCES_PENDING_MAX,
    Closed,
    Failed,
    Ledger,
    Produced,
    ProduceGroup,
)
from headrace.core.types import LeaderEpoch, Offset


def produced(sequence: int) -> Produced:
    return Produced(1, sequence, Offset(sequence), Offset(sequence), Offset(0), LeaderEpoch(1))


def appended(ledger: Ledger, *sequences: int) -> ProduceGroup:
    group = ProduceGroup([produced(sequence) for sequence in sequences])
    ledger.appended(group)
    return group


def settle(group: ProduceGroup, error: HeadraceError | None = None) -> None:
    group.is_done, group.error = True, error


def test_should_answer_in_the_order_of_the_produces() -> None:
    ledger = Ledger(1)
    first, second = appended(ledger, 1, 2), appended(ledger, 3)
    settle(second)
    assert ledger.take() == []
    assert ledger.pending == 3
    settle(first)
    assert ledger.take() == [produced(1), produced(2), produced(3)]
    assert (ledger.take(), ledger.pending, ledger.takes_more) == ([], 0, True)


def test_should_fail_with_the_first_that_fails_and_say_no_more() -> None:
    ledger, error = Ledger(1), NotLeaderError("gone")
    first, second, third = appended(ledger, 1), appended(ledger, 2, 3), appended(ledger, 4)
    for group, what in ((first, None), (second, error), (third, None)):
        settle(group, what)
    assert ledger.take() == [produced(1), Failed(1, error, 2)]
    assert (ledger.is_over, ledger.takes_more, ledger.pending, ledger.take()) == (True, False, 0, [])


def test_should_answer_what_was_before_a_refusal_first() -> None:
    ledger, error = Ledger(1), ThrottledError("wait")
    first = appended(ledger, 1)
    ledger.refuse(error, 2)
    ledger.refuse(NotReadyError("too late"), 3)
    ledger.close()
    assert (ledger.take(), ledger.takes_more, ledger.is_over) == ([], False, False)
    settle(first)
    assert ledger.take() == [produced(1), Failed(1, error, 2)]
    ledger.refuse(error)
    assert ledger.take() == []


def test_should_fail_with_an_earlier_failure_than_the_refusal() -> None:
    ledger, error = Ledger(1), NotLeaderError("gone")
    first = appended(ledger, 1)
    ledger.refuse(ThrottledError("wait"), 2)
    settle(first, error)
    assert ledger.take() == [Failed(1, error, 1)]
    assert ledger.take() == []


def test_should_fail_for_a_reason_of_its_own_at_once_when_nothing_is_pending() -> None:
    ledger, error = Ledger(1), NotReadyError("it drains")
    ledger.refuse(error)
    assert ledger.take() == [Failed(1, error, NO_SEQUENCE)]


def test_should_close_when_everything_is_answered() -> None:
    ledger = Ledger(1)
    first = appended(ledger, 1)
    ledger.close()
    assert ledger.take() == []
    settle(first)
    assert ledger.take() == [produced(1), Closed(1)]


@given(st.lists(st.tuples(st.integers(1, 3), st.booleans()), max_size=8), st.randoms())
def test_should_say_a_prefix_and_then_at_most_one_last_word(groups: list[tuple[int, bool]], chance: Random) -> None:
    ledger, sequence, all_of_them = Ledger(1), 0, []
    for size, fails in groups:
        group = appended(ledger, *range(sequence, sequence + size))
        sequence += size
        all_of_them.append((group, NotLeaderError("gone") if fails else None))
    said = []
    for group, error in sorted(all_of_them, key=lambda _: chance.random()):
        settle(group, error)
        said += ledger.take()
    failed = next((group.answers[0].sequence for group, error in all_of_them if error), None)
    answered = [each.sequence for each in said if isinstance(each, Produced)]
    assert answered == list(range(sequence if failed is None else failed))
    last_words = [each.sequence for each in said if isinstance(each, Failed)]
    assert last_words == ([] if failed is None else [failed])


def test_should_bound_what_is_pending() -> None:
    ledger = Ledger(1)
    appended(ledger, *range(SESSION_PRODUCES_PENDING_MAX - 1))
    ledger.check_room(0)
    with pytest.raises(ThrottledError, match="produces of channel 1 are not answered yet"):
        ledger.check_room(1)


def test_should_number_channels_upwards() -> None:
    channels = OpenChannels[str]()
    channels.take_number(1, 2)
    channels.take_number(5, 2)
    channels[5] = "the fifth"
    assert (channels.find(5), channels.find(3)) == ("the fifth", None)
    with pytest.raises(BrokenSessionError, match="channel 5 is opened after channel 5"):
        channels.take_number(5, 2)
    for number in (STREAM, 6):
        with pytest.raises(BrokenSessionError, match=f"channel {number} was never opened"):
            channels.find(number)
    with pytest.raises(ThrottledError, match="has 1 channels open, as many as it may; close some, or open another"):
        channels.take_number(6, 1)
    assert channels.find(6) is None
    assert channels.give_number() == 7
