"""The loop for groups with parts that write nowhere: what meets a conflict is read again, what is refused waits."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.core.control.actions import GroupAction, SetGroupFinalizers, TopicAction
from headrace.core.control.group_errands import DONE, Errand, ErrandVerdict
from headrace.core.resources.consumer_group import ConsumerGroup
from headrace.kube.errors import ApiError, ApiUnavailableError, ForbiddenError, NotFoundError
from headrace.kube.resource import ObjectKey
from headrace.kube.watch import Changed, Listed, Removed, Unreadable
from headrace_operator.applier import Outcome
from headrace_operator.groups import GROUP_WRITES_PER_PASS_MAX, Groups
from headrace_operator.metrics import OperatorMetrics
from headrace_operator.observer import Picture, Scope
from tests.support.control import ModelApi, brokers, topic
from tests.support.group_control import ModelGroups, group
from tests.support.waiting import eventually


class Parts:
    """Client, applier and calls in one: the API server answers `outcome` to each write, but those of `odd` groups."""

    def __init__(self, outcome: Outcome = Outcome.DONE) -> None:
        self.model = ModelGroups.of(ModelApi.of([topic()], brokers(1)))
        self.outcome = outcome
        self.odd: dict[str, Outcome] = {}
        self.written: list[GroupAction] = []
        self.topic_writes = 0
        self.read: ConsumerGroup | ApiError = NotFoundError("gone")
        self.asked: list[Sequence[str]] = []
        self.is_away = False
        self.refused = 0
        """Passes that met an API server that was away."""
        self.on_write: Callable[[GroupAction], None] = lambda action: None
        """Called before its answer is heard."""
        self.topic_error: ApiError | None = None

    @property
    def picture(self) -> Picture:
        return Picture(tuple(self.model.api.topics.values()), self.model.api.observed, settled=True)

    async def apply_groups(
        self, actions: Sequence[GroupAction], landed: Callable[[GroupAction, ConsumerGroup], None]
    ) -> list[Outcome]:
        if self.is_away:
            self.refused += 1
            raise ApiUnavailableError("away")
        self.written += actions
        outcomes = [self.odd.get(action.group.name.name, self.outcome) for action in actions]
        for action, outcome in zip(actions, outcomes, strict=True):
            if outcome is Outcome.DONE:
                landed(action, self.carry_out_on_model(action))
        return outcomes

    def carry_out_on_model(self, action: GroupAction) -> ConsumerGroup:
        """The answer to it."""
        found = self.model.groups[action.group.name]
        self.model.carry_out(action)
        self.on_write(action)
        finalizers = action.finalizers if isinstance(action, SetGroupFinalizers) else found.metadata.finalizers
        gone = replace(found, metadata=replace(found.metadata, finalizers=finalizers))
        return self.model.groups.get(action.group.name, gone)

    async def apply_topic(self, action: TopicAction) -> Outcome:
        self.topic_writes += 1
        if self.topic_error is not None:
            raise self.topic_error
        return self.outcome

    async def get(self, *_: object) -> ConsumerGroup:
        if isinstance(self.read, ApiError):
            raise self.read
        return self.read

    async def carry_out(self, errand: Errand, urls: Sequence[str]) -> ErrandVerdict:
        self.asked.append(urls)
        return DONE


def loop_of(parts: Parts, *groups: ConsumerGroup, is_shown: bool = True) -> tuple[Groups, OperatorMetrics]:
    fake, metrics = cast("Any", parts), OperatorMetrics()
    loop = Groups(fake, Scope("headrace", "default", 0), fake, fake, metrics.groups)
    parts.model.groups = {each.name: each for each in groups}
    loop.take(Listed(groups))
    if is_shown:
        loop.show(parts.picture)
    return loop, metrics


def value(metrics: OperatorMetrics, name: str, **labels: str) -> float | None:
    families = text_string_to_metric_families(metrics.exposition().decode())
    samples = [sample for family in families for sample in family.samples]
    return next((each.value for each in samples if (each.name, each.labels) == (name, labels)), None)


def acts() -> bool:
    return True


async def test_should_write_what_is_planned_and_look_at_what_has_landed() -> None:
    parts = Parts()
    loop, metrics = loop_of(parts, group())
    await loop._one_pass(acts)
    assert isinstance(parts.written[0], SetGroupFinalizers)
    assert loop.known == parts.model.groups
    await loop._one_pass(acts)
    assert len(parts.written) == 2
    await loop._one_pass(acts)
    assert len(parts.written) == 2
    assert value(metrics, "headrace_operator_consumer_groups", state="Unknown") == 1


async def test_should_write_nothing_while_another_acts() -> None:
    parts = Parts()
    loop, _ = loop_of(parts, group(metadata={"deletion_timestamp": "now", "finalizers": ("headrace.io/group",)}))
    await loop._one_pass(lambda: False)
    assert (parts.written, parts.topic_writes, parts.asked) == ([], 0, [])


async def test_should_read_again_what_somebody_else_has_written() -> None:
    parts = Parts(Outcome.OVERTAKEN)
    loop, _ = loop_of(parts, group("a"))
    parts.read = group("a", metadata={"resource_version": "2"})
    await loop._one_pass(acts)
    assert loop.known == {parts.read.name: parts.read}
    parts.read = NotFoundError("gone")
    await loop._one_pass(acts)
    assert loop.known == {}


async def test_should_go_on_where_a_group_cannot_be_read() -> None:
    parts = Parts(Outcome.OVERTAKEN)
    loop, _ = loop_of(parts, group())
    parts.read = ForbiddenError("no")
    await loop._one_pass(acts)
    assert len(parts.written) == 1
    await loop._one_pass(acts)
    assert len(parts.written) == 2, "the first conflict costs no time"


async def test_should_leave_alone_for_a_while_what_the_api_server_refuses() -> None:
    parts = Parts(Outcome.REFUSED)
    loop, metrics = loop_of(parts, group())
    await loop._one_pass(acts)
    await loop._one_pass(acts)
    assert len(parts.written) == 1
    assert value(metrics, "headrace_operator_stuck_groups") == 1
    await loop._one_pass(lambda: False)
    assert value(metrics, "headrace_operator_stuck_groups") == 0, "that is for the operator that acts to say"


async def test_should_write_the_topic_once_for_each_picture_of_it() -> None:
    parts = Parts()
    loop, _ = loop_of(parts, group())
    await loop._one_pass(acts)
    await loop._one_pass(acts)
    assert parts.topic_writes == 1
    loop.show(parts.picture)
    await loop._one_pass(acts)
    assert parts.topic_writes == 2


async def test_should_do_nothing_before_it_has_a_picture() -> None:
    parts = Parts()
    loop, _ = loop_of(parts, group(), is_shown=False)
    await loop._one_pass(acts)
    assert parts.written == []


async def test_should_run_errands_and_let_go_what_is_done() -> None:
    parts = Parts()
    going = group(metadata={"deletion_timestamp": "now", "finalizers": ("headrace.io/group",)})
    parts.model.api.topics[topic("headrace-offsets").uid] = topic("headrace-offsets", partitions=16)
    parts.model.api.settle()
    loop, metrics = loop_of(parts, going)
    running = asyncio.create_task(loop._loop(acts))
    await eventually(lambda: parts.model.groups == {}, "it is gone")
    running.cancel()
    assert parts.asked[0] == [""], "the URLs of the brokers that serve"
    assert value(metrics, "headrace_operator_group_requests_total", what="delete", result="done") == 1


async def test_should_come_back_when_the_api_server_does() -> None:
    parts = Parts()
    parts.is_away = True
    loop, _ = loop_of(parts, group())
    running = asyncio.create_task(loop._loop(acts))
    await eventually(lambda: parts.refused > 0, "it has tried")
    parts.is_away = False
    await eventually(lambda: len(parts.written) == 2, "it writes")
    running.cancel()


async def test_should_do_nothing_before_it_knows_the_groups() -> None:
    parts = Parts()
    fake = cast("Any", parts)
    loop = Groups(fake, Scope("headrace", "default", 0), fake, fake, OperatorMetrics().groups)
    parts.model.api.topics[topic("headrace-offsets").uid] = topic(
        "headrace-offsets", metadata={"finalizers": ("headrace.io/in-use",), "deletion_timestamp": "now"}
    )
    loop.show(parts.picture)
    await loop._one_pass(acts)
    assert parts.topic_writes == 0, "there may be groups"
    loop.take(Listed(()))
    await loop._one_pass(acts)
    assert parts.topic_writes == 1


async def test_should_not_let_the_urgent_wait_for_a_thousand_others() -> None:
    parts = Parts()
    loop, _ = loop_of(parts, *(group(f"g{number}") for number in range(GROUP_WRITES_PER_PASS_MAX + 1)))
    await loop._one_pass(acts)
    assert len(parts.written) == GROUP_WRITES_PER_PASS_MAX
    await loop._one_pass(acts)
    assert {action.group.name for action in parts.written} == parts.model.groups.keys()


async def test_should_not_go_on_after_a_defect() -> None:
    class Broken(Parts):
        async def carry_out(self, errand: Errand, urls: Sequence[str]) -> ErrandVerdict:
            raise ZeroDivisionError

    parts = Broken()
    with_offsets_topic(parts)
    loop, _ = loop_of(parts, group(metadata={"deletion_timestamp": "now", "finalizers": ("headrace.io/group",)}))
    with pytest.raises(ZeroDivisionError):
        await loop._loop(acts)


GOING = {"deletion_timestamp": "now", "finalizers": ("headrace.io/group",)}


def with_offsets_topic(parts: Parts) -> None:
    parts.model.api.topics[topic("headrace-offsets").uid] = topic("headrace-offsets", partitions=16)
    parts.model.api.settle()


@pytest.mark.parametrize("outcome", [Outcome.BUSY, Outcome.REFUSED])
async def test_should_do_for_all_others_what_fails_for_one(outcome: Outcome) -> None:
    parts = Parts()
    with_offsets_topic(parts)
    parts.odd = {"bad": outcome}
    loop, metrics = loop_of(parts, group("bad"), group("good"), group("going", metadata=GOING))
    running = asyncio.create_task(loop._loop(acts))
    await eventually(lambda: {name.name for name in parts.model.groups} == {"bad", "good"}, "it is deleted")
    await eventually(lambda: bool(parts.model.found("good").status.conditions), "it is described")
    running.cancel()
    assert parts.model.found("good").metadata.finalizers == ("headrace.io/group",)
    assert value(metrics, "headrace_operator_stuck_groups") == 1


async def test_should_send_errands_while_nothing_can_be_written() -> None:
    parts = Parts()
    with_offsets_topic(parts)
    parts.is_away = True
    loop, _ = loop_of(parts, group("new"), group("going", metadata=GOING))
    with pytest.raises(ApiUnavailableError):
        await loop._one_pass(acts)
    await eventually(lambda: len(parts.asked) == 1, "a broker is asked")


async def test_should_forget_a_group_that_is_gone_whoever_says_so_first() -> None:
    parts = Parts()
    going = group(metadata=GOING)  # there is no topic that could hold anything of it
    loop, _ = loop_of(parts, going)
    await loop._one_pass(acts)
    assert loop.known == {}, "its last finalizer is gone"

    loop, _ = loop_of(parts, going)
    parts.on_write = lambda action: loop.take(Removed(going))
    await loop._one_pass(acts)
    assert loop.known == {}, "the watch was faster than the answer"

    loop, _ = loop_of(parts, group())
    parts.on_write = lambda action: loop.take(Removed(group()))
    await loop._one_pass(acts)
    assert loop.known == {}, "whatever was written to it last"


async def test_should_not_take_one_group_for_another_of_its_name() -> None:
    parts = Parts()
    loop, _ = loop_of(parts, group())
    anew = group(metadata={"uid": "uid-2"})
    parts.on_write = lambda action: loop.take(Changed(anew))
    await loop._one_pass(acts)
    assert loop.known == {anew.name: anew}
    loop.take(Removed(group()))
    assert loop.known == {anew.name: anew}
    loop.take(Removed(anew))
    assert loop.known == {}


async def test_should_end_its_writes_before_it_says_that_the_topic_could_not_be_written() -> None:
    class Slow(Parts):
        async def apply_groups(
            self, actions: Sequence[GroupAction], landed: Callable[[GroupAction, ConsumerGroup], None]
        ) -> list[Outcome]:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            return await super().apply_groups(actions, landed)

    parts = Slow()
    parts.topic_error = ApiUnavailableError("away")
    loop, _ = loop_of(parts, group())
    with pytest.raises(ApiUnavailableError):
        await loop._one_pass(acts)
    assert len(parts.written) == 1


async def test_should_count_the_groups_that_cannot_be_read() -> None:
    parts = Parts()
    loop, metrics = loop_of(parts, group())

    def counted() -> float | None:
        return value(metrics, "headrace_operator_unreadable_groups")

    loop.take(Listed((group(),), (ObjectKey("default", "a"), ObjectKey("default", "b"))))
    assert counted() == 2
    loop.take(Changed(group("a")))
    loop.take(Unreadable(ObjectKey("default", "b"), is_gone=True))
    assert counted() == 0
    loop.take(Unreadable(ObjectKey(*group().name)))
    assert counted() == 1
    assert loop.known is not None
    assert group().name not in loop.known, "what it wants is not known any more"
