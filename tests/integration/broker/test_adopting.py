"""A topic that goes on with the data of another: over HTTP its producers are known again, and its old uid is not."""

from headrace.core.records.columns import columns_of, encode_batch
from headrace.core.records.header import ProducerNumbers
from headrace.core.resources.partition_set import PARTITIONS_PER_SET_MAX
from headrace.core.types import RecordContent
from tests.support.batches import TIMESTAMP_MS
from tests.support.cluster import Cluster, http
from tests.support.waiting import wait_for
from tests.support.world import BATCH_BODY, PARTITION_SETS, TOPICS


def batch(sequence: int, value: bytes) -> bytes:
    records = columns_of([RecordContent(None, value, TIMESTAMP_MS)])
    return b"".join(encode_batch(records, numbers=ProducerNumbers(7, 0, sequence)))


def produce(cluster: Cluster, topic: str, sequence: int, value: bytes, query: str = "") -> int:
    answer = http("POST", f"{cluster.records_url(topic)}{query}", batch(sequence, value), BATCH_BODY)
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
    refused = http("POST", f"{cluster.records_url(name)}?topicUid={old}", batch(3, b"3"), BATCH_BODY)
    assert refused.status == 412, refused.body
    assert produce(cluster, name, 3, b"3") == 3
    read = http("GET", f"{cluster.records_url(name)}?offset=earliest", headers={"Accept": "application/json"}).json
    assert [record["value"] for record in read["records"]] == ["0", "1", "2", "3"]
    end = http("GET", f"{cluster.records_url(name, partition=1)}?offset=latest").json
    assert end["nextOffset"] == 0, "the data had one partition, the other begins empty"
    cluster.kube("DELETE", f"{TOPICS}/{name}")
    wait_for(lambda: http("GET", f"{cluster.api_url}{TOPICS}/{name}").status == 404, "it goes with its data")


def test_should_bring_back_the_partitions_of_a_set_that_is_gone_beside_one_that_is_there(
    cluster: Cluster, topic: str
) -> None:
    cluster.create_topic(topic, partitions=PARTITIONS_PER_SET_MAX + 2)
    url = cluster.records_url(topic, PARTITIONS_PER_SET_MAX + 1)
    assert http("POST", url, batch(0, b"kept"), BATCH_BODY).status == 200
    uid = cluster.partition_set(f"{topic}-1")["metadata"]["uid"]
    cluster.kube("DELETE", f"{PARTITION_SETS}/{topic}-1")

    def is_back() -> bool:
        items = cluster.kube("GET", PARTITION_SETS)["items"]
        found = [one for one in items if one["metadata"]["name"] == f"{topic}-1" and one["metadata"]["uid"] != uid]
        return bool(found) and all(state["leaderEpoch"] > 1 for state in found[0]["spec"]["partitions"])

    wait_for(is_back, "the operator gives the partitions their places back")
    wait_for(lambda: "kept" in http("GET", f"{url}?offset=earliest").body.decode(), "their records are served")
