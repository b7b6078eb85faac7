"""A reading without `follow` ends where its group has come to rest, and not before its member knows of its part."""

import asyncio
import threading

import pytest

from headrace.client.groups.async_member import AsyncCoordinatorClient
from headrace.client.groups.blocking_member import CoordinatorClient
from headrace.client.groups.member import Sending
from headrace.client.groups.requests import Joined
from headrace.core.groups.identity import GroupState
from headrace.core.groups.status import GroupReport
from tests.support.client_bench import Bench
from tests.support.patience import patient

RECORDS = 30
DEADLINE_S = patient(30)


def fill(bench: Bench) -> None:
    bench.create(partitions=3)
    with bench.producer() as producer:
        for number in range(RECORDS):
            producer.send(bench.topic, str(number), partition=number % 3)


def has_news(joined: Joined | None) -> bool:
    """Whether it gives the member partitions."""
    return joined is not None and bool(joined[0].assigned)


def test_should_not_end_while_the_word_of_its_part_is_on_its_way(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(bench)
    is_at_rest = threading.Event()
    said_once, description = CoordinatorClient.said_once, CoordinatorClient.description

    def late(self: CoordinatorClient, sending: Sending, by_ms: int | None = None) -> Joined | None:
        joined = said_once(self, sending, by_ms)
        if has_news(joined):
            assert is_at_rest.wait(DEADLINE_S), "somebody asks whether the group is at rest"
        return joined

    def seen(self: CoordinatorClient) -> GroupReport:
        report = description(self)
        if report.state is GroupState.STABLE:
            is_at_rest.set()
        return report

    monkeypatch.setattr(CoordinatorClient, "said_once", late)
    monkeypatch.setattr(CoordinatorClient, "description", seen)
    with bench.consumer(group=bench.topic) as consumer:
        assert sum(1 for _ in consumer.records(follow=False)) == RECORDS
    assert is_at_rest.is_set()


async def test_should_not_end_async_while_the_word_of_its_part_is_on_its_way(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.to_thread(fill, bench)
    is_at_rest = asyncio.Event()
    said_once, description = AsyncCoordinatorClient.said_once, AsyncCoordinatorClient.description

    async def late(self: AsyncCoordinatorClient, sending: Sending, by_ms: int | None = None) -> Joined | None:
        joined = await said_once(self, sending, by_ms)
        if has_news(joined):
            async with asyncio.timeout(DEADLINE_S):
                await is_at_rest.wait()
        return joined

    async def seen(self: AsyncCoordinatorClient) -> GroupReport:
        report = await description(self)
        if report.state is GroupState.STABLE:
            is_at_rest.set()
        return report

    monkeypatch.setattr(AsyncCoordinatorClient, "said_once", late)
    monkeypatch.setattr(AsyncCoordinatorClient, "description", seen)
    async with bench.async_consumer(group=bench.topic) as consumer:
        assert len([record async for record in consumer.records(follow=False)]) == RECORDS
    assert is_at_rest.is_set()
