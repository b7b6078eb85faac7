"""What brokers hold is asked beside the loop, and believed once."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from headrace.core.control.broker_reports import BrokerReport
from headrace.core.control.observed import Observed
from headrace.core.types import BrokerId, TopicUid
from headrace_operator.broker_calls import Inquiry
from tests.support.partition_sets import seat
from tests.support.waiting import eventually

ONE, OTHER = TopicUid("uid-1"), TopicUid("uid-2")
OBSERVED = Observed("main", (), {})
REPORTS = {BrokerId(0): BrokerReport(seat(0), {}, {})}


class Brokers:
    """They answer when the test says so."""

    def __init__(self) -> None:
        self.asked: list[Sequence[TopicUid]] = []
        self.rings = 0
        self.may_answer = asyncio.Event()

    async def reported(self, observed: Observed, uids: Sequence[TopicUid]) -> Observed:
        self.asked.append(uids)
        await self.may_answer.wait()
        self.may_answer.clear()
        return replace(observed, reports=REPORTS, asked=frozenset(uids))

    def ring(self) -> None:
        self.rings += 1


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


@pytest.fixture
async def inquiry(brokers: Brokers) -> AsyncIterator[Inquiry]:
    inquiry = Inquiry(cast("Any", brokers), brokers.ring)
    task = asyncio.create_task(inquiry.run())
    yield inquiry
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def answer(brokers: Brokers) -> None:
    rings = brokers.rings
    brokers.may_answer.set()
    await eventually(lambda: brokers.rings > rings, "it rings")


async def test_should_ask_without_waiting_and_hand_out_what_was_said_once(brokers: Brokers, inquiry: Inquiry) -> None:
    for _ in range(3):
        assert inquiry.take(OBSERVED, (ONE,)) == OBSERVED
        await eventually(lambda: len(brokers.asked) == 1, "it asks, once")
    await answer(brokers)
    assert inquiry.take(OBSERVED, (ONE,)) == replace(OBSERVED, reports=REPORTS, asked={ONE})
    assert inquiry.take(OBSERVED, (ONE,)) == OBSERVED, "it may not be so any more"
    await eventually(lambda: len(brokers.asked) == 2, "it asks anew")


async def test_should_ask_of_what_came_while_it_asked(brokers: Brokers, inquiry: Inquiry) -> None:
    inquiry.take(OBSERVED, (ONE,))
    await eventually(lambda: len(brokers.asked) == 1, "it asks")
    inquiry.take(OBSERVED, (ONE, OTHER))
    await answer(brokers)
    assert inquiry.take(OBSERVED, (ONE, OTHER)).asked == {ONE}
    await eventually(lambda: len(brokers.asked) == 2, "it asks of both")
    await answer(brokers)
    assert inquiry.take(OBSERVED, (ONE, OTHER)).asked == {ONE, OTHER}


async def test_should_not_use_what_was_asked_for_when_it_acted_last(brokers: Brokers, inquiry: Inquiry) -> None:
    inquiry.take(OBSERVED, (ONE,))
    await eventually(lambda: len(brokers.asked) == 1, "it asks")
    inquiry.drop()
    brokers.may_answer.set()
    await eventually(lambda: not brokers.may_answer.is_set(), "they answer")
    assert inquiry.take(OBSERVED, (ONE,)) == OBSERVED
    await eventually(lambda: len(brokers.asked) == 2, "it asks anew")
    assert brokers.rings == 0
    inquiry.take(OBSERVED, (OTHER,))
    inquiry.drop()
    await answer_unheard(brokers)
    assert (len(brokers.asked), brokers.rings) == (2, 0)


async def answer_unheard(brokers: Brokers) -> None:
    brokers.may_answer.set()
    await eventually(lambda: not brokers.may_answer.is_set(), "they answer")
