"""A topic that goes on with the data of another: over HTTP its producers are known again, and its old uid is not."""

from headrace.core.records.columns import columns_of, encode_batch
from headrace.core.records.header import ProducerNumbers
from headrace.core.records.record import Record
from tests.support.batches import TIMESTAMP_MS
from tests.support.cluster import Cluster, http
from tests.support.waiting import wait_for

BATCH = {"Content-Type": "application/vnd.headrace.batch"}
TOPICS = "/apis/headrace.io/v1alpha1/namespaces/default/topics"


def batch(sequence: int, value: bytes) -> bytes:
    records = columns_of([Record(None, value, TIMESTAMP_MS)])
    return b"".join(encode_batch(records, numbers=ProducerNumbers(7, 0, sequence)))


def produce(cluster: Cluster, topic: str, sequence: int, value: bytes, query: str = "") -> int:
    answer = http("POST", f"{cluster.records_url(topic)}{query}", batch(sequence, value), BATCH)
    assert answer.status == 200, answer.body
    offset: int = answer.json["results"][0]["baseOffset"]
    return offset


def test_should_know_producers_again_and_refuse_the_old_uid(cluster: Cluster, topic: str) -> None:
    old = cluster.create_topic(topic, deletionPolicy="Retain")
    assert [produce(cluster, topic, number, b"%d" % number) for number in range(3)] == [0, 1, 2]
    cluster.delete_topic(topic)
    name = f"{topic}-adopting"
    manifest = {
        "apiVersion": "headrace.io/v1alpha1",
        "kind": "Topic",
        "metadata": {"name": name, "annotations": {"headrace.io/adopt-uid": old}},
        "spec": {"partitions": 2, "replicas": 1, "retention": {"time": "unlimited"}},
    }
    new = cluster.kube("POST", TOPICS, manifest)["metadata"]["uid"]
    cluster.wait_led(name, 2)

    assert produce(cluster, name, 2, b"2", f"?topicUid={new}") == 2, "it was written before"
    refused = http("POST", f"{cluster.records_url(name)}?topicUid={old}", batch(3, b"3"), BATCH)
    assert refused.status == 412, refused.body
    assert produce(cluster, name, 3, b"3") == 3
    read = http("GET", f"{cluster.records_url(name)}?offset=earliest", headers={"Accept": "application/json"}).json
    assert [record["value"] for record in read["records"]] == ["0", "1", "2", "3"]
    end = http("GET", f"{cluster.records_url(name, partition=1)}?offset=latest").json
    assert end["nextOffset"] == 0, "the data had one partition, the other begins empty"
    cluster.kube("DELETE", f"{TOPICS}/{name}")
    wait_for(lambda: http("GET", f"{cluster.api_url}{TOPICS}/{name}").status == 404, "it goes with its data")
