"""How the brokers are reached: `server`, `namespace`, `token`, `caFile`, `timeoutMs`."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from aiohttp import web
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace import Producer
from headrace.http2.server import serve
from tests.support.certificates import Authority, Mount
from tests.support.cluster import Cluster, running_cluster
from tests.support.patience import patient
from tests.support.spark_bench import Batches, SparkBench, waits_for, whole
from tests.support.waiting import wait_for


class _Asked:
    """A server that knows no topics, and remembers who asked for them by what."""

    def __init__(self) -> None:
        self.authorizations: list[str | None] = []
        self.paths: list[str] = []
        self.port = 0

    async def answer(self, request: web.Request) -> web.Response:
        self.authorizations.append(request.headers.get("authorization"))
        self.paths.append(request.path)
        return web.json_response({"topics": []})

    async def serve(self, started: threading.Event, stopped: asyncio.Event) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.answer)
        server = await serve(app, host="127.0.0.1", port=0)
        self.port = server.port
        started.set()
        await stopped.wait()
        await server.close(1.0)


@contextmanager
def asked() -> Iterator[_Asked]:
    server, started, stopped, loop = _Asked(), threading.Event(), asyncio.Event(), asyncio.new_event_loop()
    thread = threading.Thread(target=lambda: loop.run_until_complete(server.serve(started, stopped)))
    thread.start()
    assert started.wait(patient(30))
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join(patient(30))
        loop.close()


def test_should_send_the_token_when_it_is_given(bench: SparkBench) -> None:
    with asked() as server:
        url = f"http://127.0.0.1:{server.port}"
        assert bench.rows(server=url, subscribePattern=".*", token="s3cret", namespace="team") == []
        assert bench.rows(server=url, subscribePattern=".*") == []
    assert server.authorizations == ["Bearer s3cret", None]
    assert server.paths == ["/v1/namespaces/team/topics", "/v1/namespaces/default/topics"]


def test_should_find_the_topic_only_in_its_namespace_when_there_are_several(bench: SparkBench) -> None:
    bench.create(1)
    assert bench.places(namespace="default") == [(0, 0)]
    with pytest.raises(PySparkException, match=f"topic {bench.topic} does not exist in namespace other"):
        bench.rows(namespace="other")


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Path]]:
    """A broker that speaks TLS, and the CA bundle to trust it by."""
    authority = Authority()
    mount = Mount(tmp_path_factory.mktemp("mount") / "tls", authority.secret())
    home = tmp_path_factory.mktemp("secure")
    with running_cluster(home, brokers=1, options=mount.options, tls=authority.trust) as running:
        yield running, mount.path("ca.crt")


def test_should_trust_the_bundle_when_brokers_speak_tls(secure: tuple[Cluster, Path], spark: SparkSession) -> None:
    cluster, ca_file = secure
    cluster.create_topic("flights")
    with Producer(cluster.url(), ca_file=str(ca_file)) as producer:
        producer.send("flights", b"1")
    reader = spark.read.format("headrace").option("server", cluster.url()).option("subscribe", "flights")
    assert reader.option("caFile", str(ca_file)).load().count() == 1
    with pytest.raises(PySparkException, match="certificate"):
        spark.read.format("headrace").options(server=cluster.url(), subscribe="flights").load().count()
    with pytest.raises(PySparkException, match=r"/nowhere/ca\.crt"):
        reader.option("caFile", "/nowhere/ca.crt").load().count()


def test_should_say_who_does_not_answer_when_time_is_up(bench: SparkBench) -> None:
    with pytest.raises(PySparkException, match=r"gave up on .* after .* broker 127\.0\.0\.1:1 cannot be"):
        bench.rows(server="http://127.0.0.1:1", timeoutMs="600")


def test_should_go_on_when_brokers_were_away_for_a_moment(tmp_path: Path, spark: SparkSession) -> None:
    with running_cluster(tmp_path / "cluster", brokers=1) as cluster:
        bench = SparkBench(cluster, "flights", spark, tmp_path)
        bench.create(3)
        batches, server = Batches(), bench.server
        port = server.rpartition(":")[2]
        with bench.running(batches, server=server) as query:
            waits_for(query, batches, whole(3))
            cluster.broker(0).kill()
            cluster.start_broker(0, "--port", port)
            cluster.wait_led("flights")
            bench.write(2)
            waits_for(query, batches, whole(5))


def test_should_end_with_the_reason_when_brokers_stay_away(tmp_path: Path, spark: SparkSession) -> None:
    with running_cluster(tmp_path / "cluster", brokers=1) as cluster:
        bench = SparkBench(cluster, "flights", spark, tmp_path)
        bench.create(3)
        batches = Batches()
        with bench.running(batches, timeoutMs=8_000) as query:
            waits_for(query, batches, whole(3))
            place = bench.server.removeprefix("http://")
            cluster.broker(0).kill()
            wait_for(lambda: not query.isActive, "the query ends")
            said = str(query.exception())
            assert "gave up on" in said
            assert f"broker {place} cannot be reached" in said
