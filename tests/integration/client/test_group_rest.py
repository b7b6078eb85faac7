"""A reading without `follow` ends where its group has come to rest, and not before its member knows of its part."""

import asyncio
from dataclasses import dataclass

import pytest

from headrace.client.clock import now_ms
from headrace.client.groups.coordinator_client import CoordinatorClient
from headrace.client.groups.member import Sending
from headrace.client.groups.requests import Joined
from headrace.client.transport.errands import Errand, Pause
from headrace.core.groups.identity import GroupState
from headrace.core.groups.status import GroupReport
from tests.support.client_bench import Bench
from tests.support.patience import patient

RECORDS = 30
DEADLINE_S = patient(30)
SAID_ONCE, DESCRIPTION = CoordinatorClient.said_once, CoordinatorClient.description


def has_news(joined: Joined | None) -> bool:
    """Whether it gives the member partitions."""
    return joined is not None and bool(joined[0].assigned)


@dataclass
class Rest:
    is_seen: bool = False


@pytest.fixture
def rest(monkeypatch: pytest.MonkeyPatch) -> Rest:
    """A coordinator tells a member of its part late: when its group has been seen at rest."""
    rest = Rest()

    def late(client: CoordinatorClient, sending: Sending, by_ms: int | None = None) -> Errand[Joined | None]:
        joined = yield from SAID_ONCE(client, sending, by_ms)
        if has_news(joined):
            until_ms = now_ms() + int(DEADLINE_S * 1000)
            while not rest.is_seen and now_ms() < until_ms:
                yield Pause(now_ms() + 1)
            assert rest.is_seen, "somebody asks whether the group is at rest"
        return joined

    def seen(client: CoordinatorClient) -> Errand[GroupReport]:
        report = yield from DESCRIPTION(client)
        rest.is_seen |= report.state is GroupState.STABLE
        return report

    monkeypatch.setattr(CoordinatorClient, "said_once", late)
    monkeypatch.setattr(CoordinatorClient, "description", seen)
    return rest


def test_should_not_end_while_the_word_of_its_part_is_on_its_way(bench: Bench, rest: Rest) -> None:
    bench.fill(RECORDS, partitions=3)
    with bench.consumer(group=bench.topic) as consumer:
        assert sum(1 for _ in consumer.records(follow=False)) == RECORDS
    assert rest.is_seen


async def test_should_not_end_async_while_the_word_of_its_part_is_on_its_way(bench: Bench, rest: Rest) -> None:
    await asyncio.to_thread(bench.fill, RECORDS, partitions=3)
    async with bench.async_consumer(group=bench.topic) as consumer:
        assert len([record async for record in consumer.records(follow=False)]) == RECORDS
    assert rest.is_seen
