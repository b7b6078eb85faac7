"""A broker whose disk fails acknowledges nothing more, gives up what it leads, and ends with a failure."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.core.types import BrokerId
from headrace.http2.async_transport import AsyncTransport
from headrace_broker.ending import DiskFailedError
from headrace_broker.process import run
from headrace_broker.settings import Settings
from headrace_broker.stop_signals import StopSignals
from tests.support.cluster import Cluster, running_cluster
from tests.support.failing_disk import failing_sync


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Cluster]:
    """Without a broker: the test is one itself."""
    with running_cluster(tmp_path / "cluster", brokers=0) as cluster:
        yield cluster


async def test_should_resign_and_stop_when_a_sync_fails(empty: Cluster, tmp_path: Path) -> None:
    settings = Settings(
        broker=BrokerId(0),
        data=tmp_path / "data",
        cluster="headrace",
        namespace="default",
        kubeconfig=str(empty.kubeconfig),
        host="127.0.0.1",
        port=0,
        advertised_url="",
        zone="",
    )
    broker = asyncio.create_task(run(settings, StopSignals()))
    await asyncio.to_thread(empty.wait_lease, 0)
    uid = await asyncio.to_thread(empty.create_topic)
    url = await asyncio.to_thread(empty.records_url)
    (segment,) = (tmp_path / "data" / "partitions" / f"{uid}-0").glob("*.log")

    async with AsyncTransport() as transport:
        with failing_sync(segment):
            headers = {"content-type": "application/x-ndjson"}
            answer = await transport.request("POST", url, headers=headers, body=b'{"value": "lost"}\n')
            problem = json.loads(await answer.read())
            with pytest.raises(DiskFailedError, match="the disk failed, this broker stops"):
                await broker

    assert (answer.status, problem["code"]) == (503, "StorageFailed")
    partition = (await asyncio.to_thread(empty.partition_set))["spec"]["partitions"][0]
    assert "leader" not in partition
    assert partition["isr"] == [{"broker": 0, "incarnation": 1}]
    assert not (tmp_path / "data" / "clean-stop").exists()
