"""Sessions that say anything at all, by chance: nothing is lost or held, and the broker goes on."""

import asyncio
from collections.abc import Iterator
from random import Random

from headrace.core.frames.session_messages import (
    NO_SEQUENCE,
    ChannelOpened,
    ClientMessage,
    CloseChannel,
    Credit,
    Failed,
    Produce,
    Produced,
)
from headrace.core.types import Acks
from headrace.http2.async_transport import AsyncTransport
from tests.support.batches import batch_of
from tests.support.broker_app import BrokerApp
from tests.support.partition_sets import partition_state, seat
from tests.support.patience import patient
from tests.support.sessions import SessionClient, packed, session_with, to_fetch, to_produce
from tests.support.waiting import eventually

_SESSIONS = 60
_MESSAGES = 30


class Talk:
    """One session's messages: most of them make sense."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._produce, self._fetch = [1], [2]
        self._highest = 2
        self._sequence = 0

    def messages(self) -> Iterator[ClientMessage]:
        yield to_produce(1, acks=self._chance.choice(list(Acks)))
        yield to_fetch(2, credit=1 << 40)
        for _ in range(_MESSAGES):
            yield self._message()

    def _message(self) -> ClientMessage:
        chance, roll = self._chance, self._chance.random()
        if roll < 0.2:
            return self._opening()
        if roll < 0.8:
            return self._produced()
        if roll < 0.9:
            return Credit(chance.choice(self._fetch), chance.randint(1, 1 << 20))
        return CloseChannel(chance.randint(1, self._highest + (chance.random() < 0.02)))

    def _opening(self) -> ClientMessage:
        chance = self._chance
        self._highest += chance.choice([1, 1, 5])
        if chance.random() < 0.5:
            self._produce.append(self._highest)
            return to_produce(self._highest, acks=chance.choice(list(Acks)), partition=chance.choice([0, 0, 0, 1]))
        self._fetch.append(self._highest)
        return to_fetch(self._highest, credit=chance.choice([0, 1, 5000, 1 << 40]), max_bytes=chance.choice([1, 9999]))

    def _produced(self) -> Produce:
        chance, self._sequence = self._chance, self._sequence + 1
        batch = bytearray(batch_of(*[b"x" * chance.randrange(200)] * chance.randint(1, 3)))
        if chance.random() < 0.03:
            batch[chance.randrange(len(batch))] ^= 1 << chance.randrange(8)
        return Produce(chance.choice(self._produce[-3:]), self._sequence, [batch] * chance.choice([1, 1, 2, 3, 0]))

    def data(self) -> bytes:
        data = bytearray(b"".join(map(packed, self.messages())))
        if self._chance.random() < 0.2:
            data[self._chance.randrange(len(data))] ^= 1 << self._chance.randrange(8)
        return bytes(data)


async def talk(app: BrokerApp, transport: AsyncTransport, chance: Random) -> None:
    async with session_with(transport, app.url) as session:
        data = Talk(chance).data()
        cut = chance.randrange(len(data))
        session.stream.send(data[:cut])
        listening = asyncio.create_task(listen(session))
        await asyncio.sleep(0)
        leaves = chance.random()
        if leaves < 0.3:
            listening.cancel()
            return
        session.stream.send(data[cut:], ended=True)
        check(await listening)


async def listen(session: SessionClient) -> list[object]:
    return list(await session.rest())


def check(heard: list[object]) -> None:
    """In each channel: answers in the order of what was said, then one failure at most, then nothing."""
    over, last = set[int](), dict[int, int]()
    for message in heard:
        channel = getattr(message, "channel", 0)
        assert channel not in over
        match message:
            case Produced():
                assert message.sequence > last.get(channel, 0)
                last[channel] = message.sequence
            case Failed():
                assert message.sequence == NO_SEQUENCE or message.sequence > last.get(channel, 0)
                over.add(channel)
            case _:
                pass
    if 0 in over:
        assert isinstance(heard[-1], Failed)


async def test_should_survive_whatever_is_said(app: BrokerApp) -> None:
    chance = Random(1)
    async with AsyncTransport() as transport, asyncio.timeout(patient(60)):
        for n in range(_SESSIONS // 6):
            async with asyncio.TaskGroup() as group:
                for _ in range(6):
                    group.create_task(talk(app, transport, Random(chance.random())))
                if n % 3 == 0:
                    epoch = n + 2
                    app.partition.apply(partition_state(leader=seat(0), leader_epoch=epoch, partition_epoch=epoch))
        await eventually(lambda: not app.components.sessions.open, "every session is over")
        async with session_with(transport, app.url) as session:
            session.say(to_produce(1), Produce(1, 1, [batch_of(b"last")]))
            await session.hear(ChannelOpened)
            answer = await session.hear(Produced)
            assert answer.base_offset + 1 == app.partition.high_watermark
    budgets = (app.admission.bodies, app.admission.answers)
    await eventually(lambda: all(each.left_bytes == each.limit_bytes for each in budgets), "all given back")
    await eventually(lambda: not app.partition._waiters._readers, "nobody follows")
