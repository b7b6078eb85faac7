"""The bytes of docs/protocol.md, sent by a process that knows nothing else, which is then killed."""

import asyncio
import re
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from headrace.core.frames.session_messages import FROM_BROKERS, Batches, BrokerMessage, ChannelOpened
from headrace.core.records.raw import split_batches
from tests.support import raw_session
from tests.support.broker_app import BrokerApp
from tests.support.patience import patient
from tests.support.sessions import bytes_of, packed, to_fetch
from tests.support.waiting import eventually

PROTOCOL = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text()


def examples(language: str) -> list[bytes]:
    dumps = re.findall(rf"```{language}\n(.*?)```", PROTOCOL, re.DOTALL)
    return [bytes.fromhex("".join(re.split(r"\s{2}", line)[1] for line in dump.splitlines())) for dump in dumps]


class ByHand:
    def __init__(self, process: Process) -> None:
        self.process = process
        self._reader = FROM_BROKERS.reader()

    async def say(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data.hex().encode() + b"\n")
        await self.process.stdin.drain()

    async def hear(self, count: int) -> tuple[bytes, list[BrokerMessage]]:
        """The bytes of so many messages, and the messages."""
        assert self.process.stdout is not None
        data, messages = b"", list[BrokerMessage]()
        while len(messages) < count:
            piece = bytes.fromhex((await self.process.stdout.readline()).decode())
            data += piece
            messages += map(FROM_BROKERS.message, self._reader.receive(piece))
        return data, messages


async def test_should_do_what_the_page_says_byte_by_byte(app: BrokerApp) -> None:
    (batch,), (opening, produce, produced, credit) = examples("hex"), examples("session")
    for _ in range(5):
        await app.produce(b"before")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", raw_session.__file__, str(app.server.port)), stdin=PIPE, stdout=PIPE
    )
    try:
        async with asyncio.timeout(patient(60)):
            client = ByHand(process)
            await client.say(opening)
            await client.say(produce + batch[:100])
            await client.say(batch[100:])
            data, (opened, _) = await client.hear(2)
            assert isinstance(opened, ChannelOpened)
            assert data.endswith(produced)
            await client.say(packed(to_fetch(2, offset=5, credit=1)))
            _, (_, pushed) = await client.hear(2)
            assert isinstance(pushed, Batches)
            assert (pushed.next_offset, pushed.high_watermark, len(bytes_of(pushed))) == (6, 6, 640)
            (stamped,) = split_batches([bytes_of(pushed)], batch_bytes_max=640)
            assert (stamped.header.base_offset, stamped.header.leader_epoch) == (5, 1)
            await client.say(credit)
            await app.produce(b"after")
            await client.hear(1)
        assert app.components.sessions.channels == 2
    finally:
        process.kill()
        await process.wait()
    await eventually(lambda: not app.components.sessions.open, "the session is forgotten")
    assert not app.partition._waiters._readers
