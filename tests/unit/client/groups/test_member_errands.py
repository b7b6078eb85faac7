"""When a reading without `follow` ends, and in which order a member that is closed while it joins says so."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.client.clock import now_ms
from headrace.client.consumer.cursor import Handed
from headrace.client.consumer.options import GroupArguments, group_options
from headrace.client.groups.async_member import AsyncMember
from headrace.client.groups.blocking_member import BlockingMember
from headrace.client.groups.member import GroupMember, Sending
from headrace.client.transport.async_brokers import AsyncBrokers
from headrace.client.transport.brokers import Brokers
from headrace.client.transport.errands import Errand, Here
from headrace.client.transport.retry import Trouble
from headrace.core.errors import BrokerUnreachableError, HeadraceError, UnknownTopicError
from headrace.core.groups.identity import MemberId
from tests.support.patience import patient
from tests.support.waiting import eventually, wait_for


def blocking_member(answer: HeadraceError | None) -> BlockingMember:
    """Of a member in a stable group that shares out nothing; brokers answer so when they are asked for its topic."""

    def layout_once(topic: str) -> Errand[None]:
        if answer is not None:
            raise answer
        yield from ()

    def description() -> Errand[None]:
        yield from ()

    parts: dict[str, Any] = {
        "group_member": SimpleNamespace(missing=lambda _: ["flights"], silent=lambda *_: (False, [])),
        "_changed": nullcontext(),
        "_brokers": SimpleNamespace(layout_once=layout_once),
        "_coordinator": SimpleNamespace(description=description),
    }
    member = BlockingMember.__new__(BlockingMember)
    member.__dict__.update(parts)
    return member


@pytest.mark.parametrize(
    ("answer", "settled"),
    [
        (UnknownTopicError("topic default/flights is not there"), True),
        (BrokerUnreachableError("no broker answers"), False),
        (None, False),
    ],
    ids=["not-there", "nobody-answers", "there"],
)
def test_should_be_settled_without_a_topic_only_where_brokers_say_that_it_is_not_there(
    answer: HeadraceError | None, settled: bool
) -> None:
    assert blocking_member(answer).is_settled() is settled


OPTIONS: Any = group_options(["flights"], "billing", GroupArguments())


class LeavingMember(GroupMember):
    """Tells when its member begins to leave."""

    def __init__(self, tell: Callable[[], None]) -> None:
        super().__init__(OPTIONS, Handed(), lambda: MemberId("m"), Trouble(), 60_000)
        self._tell_leaving = tell

    def leave(self, now_ms: int) -> list[Sending]:
        sendings = super().leave(now_ms)
        self._tell_leaving()
        return sendings

    def take_lost(self) -> Any:
        self._tell_leaving()
        return super().take_lost()


REFUSED = BrokerUnreachableError("no broker answers")
FETCHES: Any = SimpleNamespace(reading=SimpleNamespace(handed=Handed()), wake=lambda: None)


def test_should_leave_after_its_join_is_answered_when_it_is_closed_meanwhile() -> None:
    heard, may_answer, has_left = list[str](), threading.Event(), threading.Event()

    def wait() -> None:
        heard.append("join")
        assert may_answer.wait(patient(30))
        has_left.wait(0.2)  # A leave that waits for nothing comes first.
        heard.append("answer")
        raise REFUSED

    def join(_: Sending) -> Errand[None]:
        yield Here(wait)

    def leave(*_: object) -> Errand[None]:
        heard.append("leave")
        has_left.set()
        yield from ()

    brokers: Any = Brokers("http://127.0.0.1:1", None, timeout_ms=1_000, request_timeout_ms=1_000)
    member = BlockingMember(brokers, FETCHES, OPTIONS, "earliest", 60_000)
    member.group_member = member._plan._member = LeavingMember(may_answer.set)
    member._coordinator = SimpleNamespace(said_once=join, leave=leave)  # type: ignore[assignment]
    member.run(member.resume())
    wait_for(lambda: heard == ["join"], "it asks to join")
    member.close()
    assert heard == ["join", "answer", "leave"]


async def test_should_leave_after_its_join_is_answered_when_an_async_one_is_closed_meanwhile() -> None:
    heard, may_answer = list[str](), asyncio.Event()

    async def wait() -> None:
        heard.append("join")
        await may_answer.wait()
        heard.append("answer")
        raise REFUSED

    def join(_: Sending) -> Errand[None]:
        yield Here(wait)

    def leave(*_: object) -> Errand[None]:
        heard.append("leave")
        yield from ()

    brokers: Any = AsyncBrokers("http://127.0.0.1:1", None, timeout_ms=1_000, request_timeout_ms=1_000)
    member = AsyncMember(brokers, FETCHES, OPTIONS, "earliest", 60_000)
    member.group_member = member._plan._member = LeavingMember(may_answer.set)
    member._coordinator = SimpleNamespace(said_once=join, leave=leave)  # type: ignore[assignment]
    await brokers.run(member.resume())
    await eventually(lambda: heard == ["join"], "it asks to join")
    await member.close(now_ms() + 60_000)
    assert heard == ["join", "answer", "leave"]
