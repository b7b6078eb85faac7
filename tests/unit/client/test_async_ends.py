"""Asyncio clients that end, or that are used where they do not belong, say so at once: nobody waits in vain."""

import asyncio

import pytest

from headrace import AsyncConsumer, AsyncProducer
from headrace.core.errors import BrokerUnreachableError, LocalError
from tests.support.patience import patient
from tests.support.waiting import eventually

NOBODY = "http://127.0.0.1:1"


async def test_should_tell_whoever_waits_for_metadata_when_the_producer_is_closed() -> None:
    producer = AsyncProducer(NOBODY)
    waiting = asyncio.create_task(producer.send("flights", b"a"))
    failed = producer._brokers.directory.routes._failed_at_ms
    await eventually(lambda: bool(failed), "nobody has answered")
    await producer.close()
    with pytest.raises(LocalError, match="the metadata of flights: closed meanwhile"):
        await asyncio.wait_for(waiting, patient(20))


def test_should_belong_to_one_event_loop() -> None:
    producer, consumer = AsyncProducer(NOBODY, delivery_timeout_ms=1), AsyncConsumer("f", server=NOBODY, timeout_ms=1)

    async def begin() -> None:
        for attempt in (producer.send("flights", b"a"), consumer.start()):
            with pytest.raises(BrokerUnreachableError):
                await attempt

    async def go_on() -> None:
        for attempt in (producer.flush(), producer.close(), consumer.start(), anext(aiter(consumer))):
            with pytest.raises(LocalError, match="belongs to another event loop: make one for each loop"):
                await attempt

    asyncio.run(begin())
    asyncio.run(go_on())
