"""One pass of the loop after the other, with parts that write nowhere."""

from random import Random
from typing import Any, cast

from headrace.core.control.actions import TopicPlan
from headrace_operator.applier import Outcome
from headrace_operator.metrics import Metrics
from headrace_operator.observer import Picture
from headrace_operator.reconciler import Reconciler
from tests.support.control import ModelApi, broker, topic


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


def stuck(metrics: Metrics) -> float:
    return float(metrics.stuck._value.get())


async def test_should_leave_refused_topics_alone_and_count_them_while_it_acts() -> None:
    parts, metrics = Parts(), Metrics()
    fake = cast("Any", parts)
    reconciler = Reconciler(fake, fake, fake, metrics, Random(1), acts=lambda: parts.acts)
    for _ in range(3):
        await reconciler._one_pass()
    assert (parts.applied, stuck(metrics)) == (2, 2)
    parts.acts = False
    await reconciler._one_pass()
    assert stuck(metrics) == 0


async def test_should_forget_refusals_of_what_is_gone() -> None:
    parts, metrics = Parts(), Metrics()
    fake = cast("Any", parts)
    reconciler = Reconciler(fake, fake, fake, metrics, Random(1), acts=lambda: True)
    await reconciler._one_pass()
    parts.api.topics.clear()
    reconciler._refused_until_ms = dict.fromkeys(reconciler._refused_until_ms, 0)  # time passes
    await reconciler._one_pass()
    assert stuck(metrics) == 0
