"""Records go in and come out, by any client, over both protocols, as bytes and as JSON."""

import json
import subprocess
import time

import pytest

from headrace.core.records.columns import decode_batches
from headrace.http2.async_transport import AsyncTransport
from headrace.http2.blocking_transport import BlockingTransport
from tests.support.batches import batch_of
from tests.support.cluster import Cluster, http
from tests.support.patience import patient
from tests.support.tools import require_tool
from tests.support.waiting import wait_for
from tests.support.world import BATCH, JSON_BODY, LEASES, NDJSON_BODY


def produce_values(url: str, *values: str) -> int:
    """The offset of the first."""
    body = json.dumps({"records": [{"value": value} for value in values]}).encode()
    answer = http("POST", url, body, JSON_BODY)
    assert answer.status == 200, answer.body
    base: int = answer.json["baseOffset"]
    return base


def values_of(batches: bytes) -> list[bytes]:
    return [record.value or b"" for batch in decode_batches(batches) for _, record in batch.rows()]


@pytest.mark.parametrize("protocol", ["--http1.1", "--http2-prior-knowledge"])
def test_should_give_back_what_curl_sent(shared: Cluster, topic: str, protocol: str) -> None:
    curl = require_tool("curl")
    shared.create_topic(topic)
    url = shared.records_url(topic)

    def run(*arguments: str, stdin: bytes = b"") -> bytes:
        command = [curl, "--silent", "--show-error", "--fail-with-body", protocol, *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, check=True, timeout=patient(30)).stdout

    record = '{"records": [{"key": "N14228", "value": {"carrier": "UA"}, "headers": {"source": "curl"}}]}'
    produced = json.loads(run("-H", "Content-Type: application/json", "-d", record, url))
    assert (produced["partition"], produced["baseOffset"], produced["lastOffset"]) == (0, 0, 0)
    lines = b'{"value": "one"}\n{"valueBase64": "/w=="}\n'
    produced = json.loads(run("-H", "Content-Type: application/x-ndjson", "--data-binary", "@-", url, stdin=lines))
    assert (produced["baseOffset"], produced["lastOffset"]) == (1, 2)

    fetched = json.loads(run(f"{url}?valueFormat=json"))
    first, second, third = fetched["records"]
    assert (first["offset"], first["key"], first["value"]) == (0, "N14228", {"carrier": "UA"})
    assert first["headers"] == [{"name": "source", "value": "curl"}]
    assert second["value"] == "one"
    assert third["valueBase64"] == "/w=="
    assert (fetched["nextOffset"], fetched["highWatermark"], fetched["logStartOffset"]) == (3, 3, 0)
    as_lines = run("-H", "Accept: application/x-ndjson", f"{url}?offset=1&maxRecords=1").splitlines()
    assert [json.loads(line)["offset"] for line in as_lines] == [1]


async def test_should_give_back_the_very_batches_that_were_sent(shared: Cluster, topic: str) -> None:
    uid = shared.create_topic(topic)
    url = shared.records_url(topic)
    one, two = batch_of(b"a", b"b"), batch_of(b"c")
    async with AsyncTransport() as transport:
        sent = await transport.request("POST", url, headers={"content-type": BATCH}, body=[one, two])
        produced = json.loads(await sent.read())
        answer = await transport.request("GET", f"{url}?offset=1", headers={"accept": BATCH})
        fetched = await answer.read()

    assert produced == {
        "partition": 0,
        "baseOffset": 0,
        "lastOffset": 2,
        "leaderEpoch": 1,
        "topicUid": uid,
        "results": [{"baseOffset": 0, "lastOffset": 1}, {"baseOffset": 2, "lastOffset": 2}],
    }
    assert values_of(fetched) == [b"a", b"b", b"c"]
    assert fetched[24 : len(one)] == one[24:]
    assert {name: answer.headers[name] for name in answer.headers if name.startswith("headrace-")} == {
        "headrace-next-offset": "3",
        "headrace-high-watermark": "3",
        "headrace-log-start-offset": "0",
        "headrace-leader-epoch": "1",
        "headrace-topic-uid": uid,
    }


@pytest.mark.parametrize(("acks", "status"), [("all", 200), ("1", 200), ("0", 202)])
def test_should_keep_what_was_sent_whatever_was_to_be_acknowledged(
    shared: Cluster, topic: str, acks: str, status: int
) -> None:
    shared.create_topic(topic)
    url = shared.records_url(topic)
    with BlockingTransport() as transport:
        sent = transport.request("POST", f"{url}?acks={acks}", headers={"content-type": BATCH}, body=batch_of(b"a"))
        assert sent.status == status
        fetched = wait_for(
            lambda: transport.request("GET", url, headers={"accept": BATCH}).body or None, "the batch is committed"
        )
    assert values_of(fetched) == [b"a"]


def test_should_answer_at_least_one_batch_and_whole_batches_only(shared: Cluster, topic: str) -> None:
    shared.create_topic(topic)
    url = shared.records_url(topic)
    for _ in range(4):
        http("POST", url, batch_of(b"x" * 100, b"y"), {"Content-Type": BATCH})
    size = len(batch_of(b"x" * 100, b"y"))

    def fetched(query: str) -> int:
        return len(http("GET", f"{url}?{query}", headers={"Accept": BATCH}).body) // size

    assert fetched("maxBytes=1") == 1
    assert fetched(f"maxBytes={2 * size}") == 2
    assert fetched("maxRecords=3") == 2
    assert fetched("offset=latest") == 0
    assert http("GET", f"{url}?maxRecords=3").json["nextOffset"] == 3


def test_should_wait_for_records_when_there_are_none_yet(shared: Cluster, topic: str) -> None:
    shared.create_topic(topic)
    url = shared.records_url(topic)
    with BlockingTransport() as transport:
        started = time.monotonic()
        nothing = transport.request("GET", f"{url}?maxWaitMs=200")
        assert json.loads(nothing.body)["records"] == []
        assert time.monotonic() - started >= 0.2

        pending = transport.start("GET", f"{url}?maxWaitMs=30000", headers={"accept": BATCH})
        produce_values(url, "woken")
        assert values_of(pending.result(patient(30)).body) == [b"woken"]

        enough = len(batch_of(b"z" * 500))
        pending = transport.start("GET", f"{url}?offset=1&minBytes={enough}&maxWaitMs=30000", headers={"accept": BATCH})
        produce_values(url, "too little")
        produce_values(url, "z" * 500)
        assert values_of(pending.result(patient(30)).body) == [b"too little", b"z" * 500]


def test_should_find_offsets_by_time_and_at_the_ends(shared: Cluster, topic: str) -> None:
    shared.create_topic(topic)
    url = shared.records_url(topic)
    body = b"".join(b'{"value": "x", "timestamp": %d}\n' % time_ms for time_ms in (1000, 2000, 3000))
    http("POST", url, body, NDJSON_BODY)
    offsets = url.replace("/records", "/offsets")

    def found(timestamp: str) -> tuple[int | None, int | None]:
        answer = http("GET", f"{offsets}?timestamp={timestamp}").json
        return answer["offset"], answer["timestamp"]

    assert found("earliest") == (0, None)
    assert found("latest") == (3, None)
    assert found("1001") == (1, 2000)
    assert found("3001") == (None, None)


def test_should_choose_partitions_by_key_and_in_turn_when_the_client_does_not(shared: Cluster, topic: str) -> None:
    shared.create_topic(topic, partitions=4)
    url = f"{shared.url(0)}/v1/namespaces/default/topics/{topic}/records"
    keyed = [{"key": f"k{i % 3}", "value": str(i)} for i in range(12)]
    unkeyed = [{"value": str(i)} for i in range(8)]

    results = http("POST", url, json.dumps({"records": keyed + unkeyed}).encode(), JSON_BODY).json["results"]

    assert len(results) == 20
    for key in range(3):
        mine = [results[i] for i in range(12) if i % 3 == key]
        assert len({each["partition"] for each in mine}) == 1
        assert [each["offset"] for each in mine] == sorted(each["offset"] for each in mine)
    assert {each["partition"] for each in results[12:]} == {0, 1, 2, 3}
    record, place = keyed[5], results[5]
    fetched = http("GET", f"{shared.records_url(topic, place['partition'])}?offset={place['offset']}&maxRecords=1").json
    assert fetched["records"][0]["value"] == record["value"]


def test_should_describe_the_cluster_and_its_topics(shared: Cluster, topic: str) -> None:
    uid = shared.create_topic(topic, partitions=2)
    brokers = http("GET", f"{shared.url()}/v1/cluster").json
    assert brokers["cluster"] == "headrace"
    leases = [shared.kube("GET", f"{LEASES}/headrace-broker-{number}") for number in (0, 1)]
    lives = [int(lease["spec"]["holderIdentity"]) for lease in leases]
    assert [(each["id"], each["url"], each["state"], each["incarnation"]) for each in brokers["brokers"]] == [
        (0, shared.url(0), "Ready", lives[0]),
        (1, shared.url(1), "Ready", lives[1]),
    ]
    led = sum(each["leaders"] for each in brokers["brokers"])
    assert led == sum(each["replicas"] for each in brokers["brokers"]) == brokers["partitions"]["total"] >= 2
    assert brokers["partitions"]["offline"] == brokers["partitions"]["underReplicated"] == 0
    summary = {"namespace": "default", "name": topic, "uid": uid, "partitions": 2, "replicas": 1}
    assert summary in http("GET", f"{shared.url(1)}/v1/namespaces/default/topics").json["topics"]
    assert http("GET", f"{shared.url(1)}/v1/namespaces/elsewhere/topics").json == {"topics": []}


def test_should_measure_what_goes_through(shared: Cluster, topic: str) -> None:
    shared.create_topic(topic)
    url = shared.records_url(topic)
    produce_values(url, "a", "b")
    http("GET", url)

    def lines() -> list[str]:
        return http("GET", shared.leader_url(topic) + "/metrics").body.decode().splitlines()

    def told() -> dict[str, float]:
        """Of this partition, by the name of the metric."""
        labels = f'{{namespace="default",partition="0",topic="{topic}"}} '
        return {name: float(value) for name, _, value in (line.partition(labels) for line in lines()) if value}

    expected = {
        "headrace_broker_records_in_total": 2.0,
        "headrace_broker_batches_in_total": 1.0,
        "headrace_broker_records_out_total": 2.0,
        "headrace_broker_high_watermark": 2.0,
        "headrace_broker_log_end_offset": 2.0,
    }
    wait_for(lambda: expected.items() <= told().items(), "all of it is counted")
    names = {line.split("{")[0].split(" ")[0] for line in lines()}
    assert {
        "headrace_broker_request_seconds_bucket",
        "headrace_broker_fsync_seconds_bucket",
        "headrace_broker_partitions_led",
        "headrace_broker_open_connections",
        "headrace_broker_orphaned_partitions",
    } <= names
