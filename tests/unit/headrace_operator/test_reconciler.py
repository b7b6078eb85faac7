"""One pass of the loop after the other, with parts that write nowhere."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any, cast

import pytest

from headrace.core.control.actions import TopicPlan
from headrace.core.control.observed import Observed
from headrace.core.types import TopicUid
from headrace_operator.applier import Outcome
from headrace_operator.metrics import OperatorMetrics
from headrace_operator.observer import Picture
from headrace_operator.reconciler import Reconciler
from tests.support.control import ModelApi, broker, topic
from tests.support.waiting import eventually


class Parts:
    """Observer, applier and reporter: the API server refuses whatever is written."""

    def __init__(self) -> None:
        self.api = ModelApi.of([topic("a"), topic("b")], [broker(0)])
        self.acts = True
        self.applied = 0

    async def observe(self) -> Picture:
        return Picture(tuple(self.api.topics.values()), self.api.observed)

    async def apply(self, plan: TopicPlan) -> Outcome:
        self.applied += 1
        return Outcome.REFUSED


def stuck(metrics: OperatorMetrics) -> float:
    return float(metrics.stuck._value.get())


async def test_should_leave_refused_topics_alone_and_count_them_while_it_acts() -> None:
    parts, metrics = Parts(), OperatorMetrics()
    fake = cast("Any", parts)
    reconciler = Reconciler(fake, fake, fake, metrics, Random(1), acts=lambda: parts.acts)
    for _ in range(3):
        await reconciler._one_pass()
    assert (parts.applied, stuck(metrics)) == (2, 2)
    parts.acts = False
    await reconciler._one_pass()
    assert stuck(metrics) == 0


async def test_should_forget_refusals_of_what_is_gone() -> None:
    parts, metrics = Parts(), OperatorMetrics()
    fake = cast("Any", parts)
    reconciler = Reconciler(fake, fake, fake, metrics, Random(1), acts=lambda: True)
    await reconciler._one_pass()
    parts.api.topics.clear()
    reconciler._refused_until_ms = dict.fromkeys(reconciler._refused_until_ms, 0)  # time passes
    await reconciler._one_pass()
    assert stuck(metrics) == 0


async def test_should_place_other_topics_while_a_broker_that_is_asked_hangs() -> None:
    parts, metrics = Hanging(), OperatorMetrics()
    fake = cast("Any", parts)
    reconciler = Reconciler(fake, fake, fake, metrics, Random(1), acts=lambda: parts.acts)
    loop = asyncio.create_task(reconciler.run())
    await eventually(lambda: parts.planned.keys() == {"b"}, "the other has its places")
    await eventually(lambda: parts.asked == 1, "it asks")
    parts.may_answer.set()
    await eventually(lambda: "a" in parts.planned, "its places come with the answer")
    loop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loop


class Hanging(Parts):
    """Of topic a nobody knows whether brokers hold anything; a broker that is asked hangs."""

    def __init__(self) -> None:
        super().__init__()
        self.api.change("uid-a", annotations={"headrace.io/placed": "uid-a/6/6"})
        self.planned: dict[str, TopicPlan] = {}
        self.may_answer = asyncio.Event()
        self.asked = 0

    async def keep_pulse(self) -> None:
        pass

    def next_change_ms(self) -> None:
        return None

    async def observe(self) -> Picture:
        return Picture(tuple(self.api.topics.values()), replace(self.api.observed, reports={}, asked=()))

    async def reported(self, observed: Observed, uids: Sequence[TopicUid]) -> Observed:
        self.asked += 1
        await self.may_answer.wait()
        return replace(observed, reports=self.api.observed.reports, asked=uids)

    async def apply(self, plan: TopicPlan) -> Outcome:
        self.planned[plan.topic.name] = plan
        return Outcome.DONE
