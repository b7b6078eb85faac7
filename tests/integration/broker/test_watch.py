"""An endless answer: it begins where it was told, follows what is committed, and its end can be told from a break."""

import asyncio
import json
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import ClientPayloadError, ClientSession

from headrace.core.errors import BrokerUnreachableError
from headrace.core.limits import H2_STREAM_WINDOW_BYTES
from headrace.core.log.epochs import Fence
from headrace.core.records.columns import decode_batches
from headrace.core.records.header import BatchHeader
from headrace.core.records.raw import HEARTBEAT
from headrace.core.types import LeaderEpoch, PartitionEpoch
from headrace.http2.async_transport import AsyncTransport
from headrace.http2.server_connection import H2_STREAM_SEND_BUFFER_BYTES
from headrace_broker.partition.fetch import WATCH_READ_BYTES
from headrace_broker.partition.queries import DeleteQuery
from headrace_broker.partition.queries import Edge as Ends
from tests.support.broker_app import BrokerApp
from tests.support.partition_sets import partition_state, seat
from tests.support.patience import patient
from tests.support.waiting import eventually
from tests.support.world import BATCH

BROKEN_OFF = (BrokerUnreachableError, ClientPayloadError)
MIB = 1 << 20


@pytest.fixture(params=["HTTP/1.1", "HTTP/2"])
def protocol(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@dataclass(slots=True)
class Stream:
    """A response that is being read."""

    status: int
    headers: dict[str, str]
    chunks: AsyncIterator[bytes]
    received: bytes = b""

    async def until(self, count: int, separator: bytes = b"\n") -> list[bytes]:
        """The first `count` lines so far, once they are there."""
        async with asyncio.timeout(patient(60)):
            while self.received.count(separator) < count:
                self.received += await anext(self.chunks)
        return self.received.split(separator)[:count]

    async def rest(self) -> bytes:
        """Everything, up to the end. Raises where it is broken off."""
        async with asyncio.timeout(patient(60)):
            async for chunk in self.chunks:
                self.received += chunk
        return self.received

    async def values(self, count: int) -> list[str]:
        return [json.loads(line)["value"] for line in await self.until(count)]


@asynccontextmanager
async def watching(protocol: str, url: str, query: str = "", **headers: str) -> AsyncIterator[Stream]:
    url = f"{url}?watch=true{query}"
    if protocol == "HTTP/1.1":
        options: dict[str, Any] = {"auto_decompress": False, "skip_auto_headers": ["Accept-Encoding"]}
        async with ClientSession(**options) as session, session.get(url, headers=headers) as answer:
            lower = {name.lower(): value for name, value in answer.headers.items()}
            yield Stream(answer.status, lower, aiter(answer.content.iter_any()))
    else:
        async with AsyncTransport() as transport:
            response = await transport.request("GET", url, headers=headers)
            yield Stream(response.status, dict(response.headers), aiter(response.chunks()))


async def wait_closed(app: BrokerApp) -> None:
    await eventually(lambda: not app.components.watches.open, "the stream is closed")


async def test_should_follow_what_is_written_as_lines(app: BrokerApp, protocol: str) -> None:
    await app.produce(b"a", b"b")
    async with watching(protocol, app.url, "&offset=1") as stream:
        assert stream.headers["content-type"] == "application/x-ndjson"
        assert stream.headers["headrace-next-offset"] == "1"
        assert stream.headers["headrace-leader-epoch"] == "1"
        assert await stream.values(1) == ["b"]
        await app.produce(b"c")
        assert await stream.values(2) == ["b", "c"]
        await app.produce(b"d")
        assert await stream.values(3) == ["b", "c", "d"]


async def test_should_follow_what_is_written_as_batches(app: BrokerApp, protocol: str) -> None:
    async with watching(protocol, app.url, "&offset=latest", Accept=BATCH) as stream:
        assert stream.headers["content-type"] == BATCH
        await app.produce(b"a", b"b")
        await app.produce(b"c")
        app.partition.drain()
        received = await stream.rest()
    values = [record.value for batch in decode_batches(received) for _, record in batch.rows()]
    assert values == [b"a", b"b", b"c"]


async def test_should_say_that_it_is_alive_when_there_is_nothing_to_say(app: BrokerApp, protocol: str) -> None:
    app.components.watches.heartbeat_ms = 20
    async with watching(protocol, app.url) as lines, watching(protocol, app.url, Accept=BATCH) as batches:
        assert await lines.until(3) == [b"", b"", b""]
        while len(batches.received) < 3 * len(HEARTBEAT):
            batches.received += await anext(batches.chunks)
        assert batches.received.startswith(HEARTBEAT * 3)
        assert BatchHeader.unpack(batches.received).is_heartbeat


async def test_should_end_after_so_many_records(app: BrokerApp, protocol: str) -> None:
    await app.produce(b"a", b"b", b"c")
    await app.produce(b"d", b"e", b"f")
    async with watching(protocol, app.url, "&offset=1&maxRecords=4") as stream:
        lines = (await stream.rest()).splitlines()
    assert [json.loads(line)["offset"] for line in lines] == [1, 2, 3, 4]
    async with watching(protocol, app.url, "&offset=2&maxRecords=1", Accept=BATCH) as stream:
        (batch,) = decode_batches(await stream.rest())
    assert batch.header.base_offset == 0
    async with watching(protocol, app.url, "&offset=1&maxRecords=3", Accept=BATCH) as stream:
        assert [batch.header.base_offset for batch in decode_batches(await stream.rest())] == [0, 3]
    route = "/v1/namespaces/{namespace}/topics/{topic}/partitions/{partition}/records"
    labels = {"method": "WATCH", "route": route}
    registry = app.components.metrics.registry
    counted = "headrace_broker_request_seconds_count"
    await eventually(lambda: registry.get_sample_value(counted, labels) == 3, "they are counted apart from short reads")


async def test_should_be_broken_off_when_this_broker_leads_no_more(app: BrokerApp, protocol: str) -> None:
    await app.produce(b"a")
    async with watching(protocol, app.url) as stream:
        assert await stream.values(1) == ["a"]
        app.partition.apply(partition_state(leader=seat(1), partition_epoch=PartitionEpoch(2)))
        with pytest.raises(BROKEN_OFF):
            await stream.rest()
    await wait_closed(app)


async def test_should_be_broken_off_when_a_new_epoch_begins(app: BrokerApp, protocol: str) -> None:
    state = partition_state(leader=seat(0), leader_epoch=LeaderEpoch(2), partition_epoch=PartitionEpoch(2))
    async with watching(protocol, app.url, Accept=BATCH) as stream:
        app.partition.apply(state)
        await app.produce(b"a")
        with pytest.raises(BROKEN_OFF):
            await stream.rest()
    assert stream.received == b""


async def test_should_end_as_it_should_when_the_broker_drains(app: BrokerApp, protocol: str) -> None:
    await app.produce(b"a")
    async with watching(protocol, app.url, **{"Accept-Encoding": "gzip"}) as stream:
        app.partition.drain()
        whole = zlib.decompressobj(31)
        lines = whole.decompress(await stream.rest()).splitlines()
    assert whole.eof
    assert json.loads(lines[0])["value"] == "a"


async def test_should_not_begin_when_the_broker_drains(app: BrokerApp, protocol: str) -> None:
    app.components.drain()
    async with watching(protocol, app.url) as refused:
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert json.loads(await refused.rest())["code"] == "NotReady"


async def test_should_compress_so_that_each_record_is_seen_at_once(app: BrokerApp, protocol: str) -> None:
    async with watching(protocol, app.url, **{"Accept-Encoding": "gzip"}) as stream:
        assert stream.headers["content-encoding"] == "gzip"
        assert "Accept-Encoding" in stream.headers["vary"]
        whole = zlib.decompressobj(31)
        for value in (b"a", b"b"):
            await app.produce(value)
            lines = b""
            async with asyncio.timeout(patient(60)):
                while not lines.endswith(b"\n"):
                    lines += whole.decompress(await anext(stream.chunks))
            assert json.loads(lines)["value"].encode() == value
    async with watching(protocol, app.url, **{"Accept-Encoding": "gzip", "Accept": BATCH}) as stream:
        assert "content-encoding" not in stream.headers


async def test_should_be_forgotten_when_its_client_leaves(app: BrokerApp, protocol: str) -> None:
    async with watching(protocol, app.url), watching(protocol, app.url, Accept=BATCH):
        assert app.components.watches.open == 2
    await wait_closed(app)
    assert app.partition._waiters._readers == set()


async def test_should_take_no_more_streams_than_it_may(app: BrokerApp, protocol: str) -> None:
    app.components.watches.streams.most = 1
    async with watching(protocol, app.url), watching(protocol, app.url) as refused:
        assert refused.status == 429
        assert refused.headers["retry-after"] == "1"
        assert json.loads(await refused.rest())["code"] == "Throttled"
    await wait_closed(app)
    async with watching(protocol, app.url) as stream:
        assert stream.status == 200


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("&offset=7", 416, "offset 7 of default/flights/0 is not there yet"),
        ("&minBytes=1", 400, "minBytes: not with watch=true"),
        ("&maxWaitMs=1", 400, "maxWaitMs: not with watch=true"),
        ("&leaderEpoch=9", 412, "leaderEpoch 9 is not that of"),
        ("&watch=true", 400, "watch: given 2 times"),
    ],
)
async def test_should_answer_with_a_problem_when_it_cannot_begin(
    app: BrokerApp, protocol: str, query: str, status: int, said: str
) -> None:
    async with watching(protocol, app.url, query) as stream:
        problem: dict[str, Any] = json.loads(await stream.rest())
    assert (stream.status, problem["status"]) == (status, status)
    assert said in problem["detail"]
    assert app.components.watches.open == 0


async def test_should_hold_little_for_a_client_that_does_not_read(app: BrokerApp, protocol: str) -> None:
    value = bytes(MIB)
    for _ in range(24):
        await app.produce(value)
    labels = {"namespace": "default", "topic": "flights", "partition": "0"}
    registry = app.components.metrics.registry

    def read_bytes() -> float:
        return registry.get_sample_value("headrace_broker_bytes_out_total", labels) or 0.0

    async with watching(protocol, app.url, Accept=BATCH) as stalled:
        await eventually(lambda: read_bytes() >= 2 * MIB, "the stream has begun")
        async with watching(protocol, app.url, "&maxRecords=24", Accept=BATCH) as fast:
            assert len(list(decode_batches(await fast.rest()))) == 24, "others go on"
        # Over HTTP/1.1 the bound is what the kernel takes; on loopback that is some megabytes.
        window = H2_STREAM_WINDOW_BYTES if protocol == "HTTP/2" else 16 * MIB
        held = read_bytes() - 24 * (MIB + 640)
        assert held <= window + H2_STREAM_SEND_BUFFER_BYTES + 2 * (WATCH_READ_BYTES + 640)

        await app.partition.delete_records(DeleteQuery(Ends.LATEST, Fence()))
        with pytest.raises(BROKEN_OFF):  # what it was to read next is gone
            await stalled.rest()


async def test_should_not_hold_up_the_stop_when_a_client_does_not_read(app: BrokerApp, protocol: str) -> None:
    for _ in range(12):
        await app.produce(bytes(MIB))
    app.components.watches.drain_ms = 20
    async with watching(protocol, app.url, Accept=BATCH) as stalled:
        app.partition.drain()
        app.components.drain()
        await wait_closed(app)
        with suppress(*BROKEN_OFF):  # over HTTP/1.1 the kernel may have taken all of it
            await stalled.rest()


async def test_should_answer_the_head_alone_when_the_method_is_head(app: BrokerApp) -> None:
    async with AsyncTransport() as transport, ClientSession() as session:
        answer = await transport.request("HEAD", f"{app.url}?watch=true")
        assert (answer.status, await answer.read()) == (200, b"")
        async with session.head(f"{app.url}?watch=true") as head:
            assert head.headers["Content-Type"] == "application/x-ndjson"
    await wait_closed(app)
