"""Any broker answers any request: those for partitions of another are passed on, once."""

import gzip
import json

import pytest

from headrace.core.errors import BrokerUnreachableError
from headrace.http2.async_transport import AsyncTransport
from headrace.http2.blocking_transport import BlockingTransport
from tests.support.batches import batch_of
from tests.support.cluster import Cluster, http
from tests.support.patience import patient
from tests.support.waiting import eventually, wait_for
from tests.support.world import BATCH, NDJSON_BODY


def other_url(cluster: Cluster, topic: str) -> str:
    """The partition's records at a broker that does not lead it."""
    leader = cluster.leader_url(topic)
    other = next(url for url in (cluster.url(0), cluster.url(1)) if url != leader)
    return f"{other}/v1/namespaces/default/topics/{topic}/partitions/0/records"


def test_should_pass_requests_on_to_the_leader(shared: Cluster, topic: str) -> None:
    shared.create_topic(topic)
    url = other_url(shared, topic)

    produced = http("POST", url, b'{"value": "a"}\n', NDJSON_BODY)
    assert (produced.status, produced.json["baseOffset"]) == (200, 0)
    assert http("POST", url, batch_of(b"b", b"c"), {"Content-Type": BATCH}).json["lastOffset"] == 2

    fetched = http("GET", f"{url}?offset=1", headers={"Accept": BATCH})
    assert fetched.body[64:] == batch_of(b"b", b"c")[64:]
    assert fetched.headers["headrace-next-offset"] == "3"
    assert fetched.headers["content-type"] == BATCH
    assert http("GET", url.replace("/records", "/offsets") + "?timestamp=latest").json["offset"] == 3
    problem = http("GET", f"{url}?offset=99")
    assert (problem.status, problem.json["code"], problem.json["highWatermark"]) == (416, "OffsetOutOfRange", 3)


async def test_should_pass_a_stream_on_as_it_comes(shared: Cluster, topic: str) -> None:
    shared.create_topic(topic)
    url = other_url(shared, topic)
    async with AsyncTransport() as transport:
        stream = await transport.request(
            "GET", f"{url}?watch=true&maxRecords=2", headers={"accept": BATCH, "accept-encoding": "gzip"}
        )
        assert (stream.status, stream.headers["content-type"]) == (200, BATCH)
        assert stream.headers["headrace-topic-uid"]
        chunks = aiter(stream.chunks())
        for value in (b"a", b"b"):
            batch = batch_of(value)
            assert (await transport.request("POST", url, headers={"content-type": BATCH}, body=batch)).status == 200
            received = await anext(chunks)
            assert received[24:] == batch[24:]
        assert [chunk async for chunk in chunks] == []

        lines = await transport.request("GET", f"{url}?watch=true&maxRecords=1", headers={"accept-encoding": "gzip"})
        assert json.loads(gzip.decompress(await lines.read()))["value"] == "a"
        refused = await transport.request("GET", f"{url}?watch=true&offset=99")
        assert (refused.status, json.loads(await refused.read())["highWatermark"]) == (416, 2)
        twice = await transport.request("GET", f"{url}?watch=true", headers={"headrace-proxied": "1"})
        assert twice.status == 421

        endless = await transport.request("GET", f"{url}?watch=true")
        leader = f"{shared.leader_url(topic)}/metrics"
        await eventually(lambda: b"\nheadrace_broker_watches 1.0" in http("GET", leader).body, "the leader streams")
        endless.cancel()
        await eventually(lambda: b"\nheadrace_broker_watches 0.0" in http("GET", leader).body, "the leader is told")


def test_should_name_the_leader_when_a_request_was_passed_on_already(shared: Cluster, topic: str) -> None:
    shared.create_topic(topic)
    answer = http("GET", other_url(shared, topic), headers={"Headrace-Proxied": "1"})
    assert (answer.status, answer.headers["retry-after"]) == (421, "1")
    problem = answer.json
    assert problem["code"] == "NotLeader"
    assert problem["url"] == shared.leader_url(topic)


def test_should_say_which_records_are_written_when_one_leader_is_gone(cluster: Cluster, topic: str) -> None:
    cluster.start_broker(1)
    cluster.create_topic(topic, partitions=2)
    survivor = cluster.leader_url(topic, 0)
    gone = cluster.leader_url(topic, 1)
    assert survivor != gone
    dead = next(broker for broker in (0, 1) if cluster.url(broker) == gone)
    passed_on = f"{survivor}/v1/namespaces/default/topics/{topic}/partitions/1/records?watch=true"
    with BlockingTransport() as transport:
        stream = transport.start("GET", passed_on)
        wait_for(lambda: b"\nheadrace_broker_watches 1.0" in http("GET", f"{gone}/metrics").body, "the stream is open")
        cluster.broker(dead).kill()
        with pytest.raises(BrokerUnreachableError, match="broke the request off"):
            stream.result(patient(60))
    url = f"{survivor}/v1/namespaces/default/topics/{topic}/records"
    body = b"".join(json.dumps({"value": str(i)}).encode() + b"\n" for i in range(4))

    def partly() -> dict[str, object] | None:
        answer = http("POST", url, body, NDJSON_BODY)
        assert answer.status in (421, 503), answer.body
        problem: dict[str, object] = answer.json
        return problem

    problem = wait_for(partly, "the request fails in part")

    assert problem["retriable"] is True
    results = problem["results"]
    assert isinstance(results, list)
    written = [result for result in results if result is not None]
    assert len(written) == 2
    assert {result["partition"] for result in written} == {0}


def test_should_go_to_no_address_that_somebody_writes_into_a_lease(shared: Cluster, topic: str) -> None:
    shared.create_topic(topic)
    url = other_url(shared, topic)
    leader = next(number for number in (0, 1) if not url.startswith(shared.url(number)))
    lease = f"/apis/coordination.k8s.io/v1/namespaces/default/leases/headrace-broker-{leader}"
    lure = {"metadata": {"annotations": {"headrace.io/url": "http://attacker.invalid:9"}}}
    said = f"says that broker {leader} is at 'http://attacker.invalid:9'"

    def is_told() -> bool:
        shared.kube("PATCH", lease, lure)  # Once more: the broker puts its own back with its next renewal.
        return said in shared.broker(1 - leader).log and said in shared.programs["operator"].log

    wait_for(is_told, "the other broker and the operator say that they do not go there")
    wait_for(lambda: http("GET", f"{url}?offset=earliest").status == 200, "the other one goes to its own address again")
