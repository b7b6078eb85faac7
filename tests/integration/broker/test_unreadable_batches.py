"""A log with a batch that nobody can decode: no reader stops for ever, and none loses silently."""

import asyncio
import errno
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import ClientSession

from headrace.client.consumer.async_consumer import AsyncConsumer
from headrace.client.record import TopicPartition
from headrace.core.errors import UnreadableBatchError
from headrace.core.log.epochs import Fence
from headrace.core.records.raw import split_batches
from headrace.core.resources.lease import BrokerLease
from headrace.core.resources.metadata import Metadata
from headrace.core.types import Acks, BrokerId, Incarnation
from headrace.spark.errors import DataLossError, LossPolicy
from headrace.spark.offsets import OffsetRange, SourcePartition
from headrace.spark.options import Connection
from headrace.spark.range_reader import reader_of
from headrace_broker.clock import monotonic_ms
from headrace_broker.partition.queries import ProduceQuery
from tests.support.batches import batch_of, mislabelled, poisoned
from tests.support.broker_app import KEY, BrokerApp, running_app
from tests.support.failing_disk import before_each
from tests.support.world import NDJSON_BODY

PLACE = TopicPartition("flights", 0)


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[BrokerApp]:
    """Offsets 0 and 6 can be read; those between were appended by a broker that did not look into bodies."""
    async with running_app(tmp_path / "data") as app:
        batches = batch_of(b"0") + poisoned(batch_of(b"1", b"2")) + mislabelled(batch_of(b"3", b"4", b"5"))
        everything = split_batches([batches + batch_of(b"6")], batch_bytes_max=1 << 20, are_committed=True)
        await app.partition.produce(everything, ProduceQuery(Acks.ALL, 30_000, Fence()))
        lease = BrokerLease(Metadata(name="broker-0"), BrokerId(0), Incarnation(1), server(app))
        app.components.view.list_leases([lease], monotonic_ms())
        yield app


def server(app: BrokerApp) -> str:
    return f"http://127.0.0.1:{app.server.port}"


@pytest.mark.parametrize("accept", ["application/json", "application/x-ndjson"])
async def test_should_say_over_http_where_to_read_on(app: BrokerApp, accept: str, tmp_path: Path) -> None:
    headers = {"Accept": accept}
    offset, shown, told = 0, 0, list[tuple[int, int]]()
    async with ClientSession(headers=headers) as http:
        while offset < 7:
            async with http.get(f"{app.url}?offset={offset}") as answer:
                if answer.status == 200:
                    shown += (await answer.read()).count(b'"timestamp"')
                    offset = int(answer.headers["Headrace-Next-Offset"])
                    continue
                problem = await answer.json(content_type=None)
            assert (answer.status, problem["code"], problem["retriable"]) == (422, "UnreadableBatch", False)
            assert (problem["topic"], problem["partition"]) == ("flights", 0)
            told.append((problem["baseOffset"], problem["lastOffset"]))
            offset = problem["nextOffset"]
            assert f"read on with offset={offset}" in problem["detail"]
            assert str(tmp_path) not in problem["detail"]
    assert (shown, told) == (2, [(1, 2), (3, 5)])
    assert not app.partition.log.verification.is_suspect, "the log is right"


async def test_should_break_a_stream_off_and_say_why_to_whoever_asks_again(app: BrokerApp) -> None:
    async with ClientSession(headers={"Accept": "application/x-ndjson"}) as http:
        async with http.get(f"{app.url}?watch=true&offset=0") as answer:
            assert b'"value": "0"' in await answer.content.readline()
        async with http.get(f"{app.url}?watch=true&offset=1") as answer:
            problem = await answer.json(content_type=None)
            assert (answer.status, problem["code"], problem["nextOffset"]) == (422, "UnreadableBatch", 3)
        async with http.get(f"{app.url}?watch=true&offset=6&maxRecords=1") as answer:
            assert b'"value": "6"' in await answer.read()


async def test_should_hand_out_what_can_be_read_and_tell_of_the_rest(app: BrokerApp) -> None:
    async with AsyncConsumer("flights", server=server(app), namespace="default") as consumer:
        assert (await anext(aiter(consumer))).value == b"0"
        for base, next_offset in ((1, 3), (3, 6)):
            for _ in range(2):  # Whoever reads on hears of it again.
                with pytest.raises(UnreadableBatchError) as told:
                    await anext(aiter(consumer))
                assert (told.value.details["baseOffset"], told.value.details["nextOffset"]) == (base, next_offset)
                assert consumer.position(0) == base
            await consumer.seek(PLACE, next_offset)
        assert (await anext(aiter(consumer))).value == b"6"
        assert consumer.skips == 0
    async with AsyncConsumer("flights", server=server(app), namespace="default", on_unreadable="skip") as consumer:
        assert [record.value async for record in consumer.records(follow=False)] == [b"0", b"6"]
        assert consumer.skips == 2


async def _consume(app: BrokerApp, *arguments: str) -> tuple[int | None, bytes, str]:
    command = (f"{sys.prefix}/bin/headrace", "consume", "flights", "--server", server(app), *arguments)
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    out, err = await process.communicate()
    return process.returncode, out, err.decode()


async def test_should_say_on_the_command_line_how_to_read_on(app: BrokerApp) -> None:
    code, out, err = await _consume(app, "-o", "value")
    assert (code, out) == (1, b"0\n")
    said = " ".join(err.split())
    assert "flights/0: offsets 1 to 2 cannot be decoded: " in said
    assert "with --skip-unreadable, or read on with --partition 0 --from 3" in said
    assert "seek(" not in said
    code, out, err = await _consume(app, "-o", "value", "--skip-unreadable")
    assert (code, out) == (0, b"0\n6\n")
    assert err.count("left out, as on_unreadable='skip' says") == 2


async def test_should_fail_a_query_or_leave_them_out_as_its_policy_says(app: BrokerApp) -> None:
    wanted = OffsetRange(SourcePartition("flights", KEY.uid, 0), 0, 7)
    connection = Connection.of({"server": server(app), "namespace": "default"})

    def read(loss: LossPolicy) -> list[int]:
        with reader_of(connection) as reader:
            return [offset for batch in reader.batches(wanted, loss) for offset in batch.offsets.tolist()]

    with pytest.raises(
        DataLossError, match=r"of flights/0, offsets 1 to 2 cannot be decoded: .* set failOnDataLoss=fa"
    ):
        await asyncio.to_thread(read, LossPolicy())
    assert await asyncio.to_thread(read, LossPolicy(fails=False)) == [0, 6]


async def test_should_name_a_damaged_file_and_not_where_the_disk_is(app: BrokerApp, tmp_path: Path) -> None:
    (segment,) = app.partition.log.directory.glob("*.log")
    content = bytearray(segment.read_bytes())
    content[20] ^= 1
    segment.write_bytes(content)
    async with ClientSession() as http, http.get(f"{app.url}?offset=0") as answer:
        problem = await answer.json(content_type=None)
    assert (answer.status, problem["code"]) == (500, "CorruptLog")
    assert "partitions/uid-1-0" in problem["detail"]
    assert str(tmp_path) not in problem["detail"]


async def test_should_not_say_where_a_disk_is_that_fails(app: BrokerApp, tmp_path: Path) -> None:
    def fail(_fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    async with ClientSession(headers=NDJSON_BODY) as http:
        with before_each(("writev",), fail):
            async with http.post(app.url, data=b'{"value": 1}') as answer:
                problem = await answer.json(content_type=None)
    assert (answer.status, problem["code"]) == (503, "StorageFailed")
    assert "partitions/uid-1-0" in problem["detail"]
    assert str(tmp_path) not in problem["detail"]
