"""Data is deleted when its Topic is, and only then; what no API object names any more is kept aside."""

import json
import subprocess

from headrace.core.log.checkpoints import seal
from tests.support.cluster import Cluster, http
from tests.support.patience import patient
from tests.support.tools import require_tool
from tests.support.waiting import wait_for
from tests.support.world import JSON_BODY


def directories(cluster: Cluster, place: str, uid: str) -> list[str]:
    """The topic's, in that part of the broker's disk."""
    return sorted(path.name for path in (cluster.home / "broker-0" / place).glob(f"{uid}-*"))


def wait_gone(cluster: Cluster, topic: str, uid: str) -> None:
    wait_for(lambda: not directories(cluster, "partitions", uid), "the data is deleted")
    url = f"{cluster.url()}/v1/namespaces/default/topics/{topic}"
    wait_for(lambda: http("GET", url).status == 404, "the topic's finalizer is gone")


def test_should_delete_the_data_when_the_topic_is_deleted(cluster: Cluster, topic: str) -> None:
    uid = cluster.create_topic(topic, partitions=2)
    assert directories(cluster, "partitions", uid) == [f"{uid}-0", f"{uid}-1"]

    cluster.delete_topic(topic)

    wait_gone(cluster, topic, uid)
    assert directories(cluster, "orphaned", uid) == []
    metrics = f"{cluster.url()}/metrics"
    wait_for(lambda: f'topic="{topic}"' not in http("GET", metrics).body.decode(), "its metrics are gone")


def test_should_break_streams_off_when_the_topic_is_deleted(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic)
    url = f"{cluster.records_url(topic)}?watch=true"
    curl = [require_tool("curl"), "--silent", "--no-buffer", "--max-time", "60", url]
    streams = [subprocess.Popen([*curl, protocol]) for protocol in ("--http1.1", "--http2-prior-knowledge")]
    metrics = f"{cluster.url()}/metrics"
    wait_for(lambda: b"\nheadrace_broker_watches 2.0" in http("GET", metrics).body, "the streams are open")

    cluster.delete_topic(topic)

    # "transfer closed with outstanding read data remaining", "stream was not closed cleanly"
    assert [stream.wait(patient(60)) for stream in streams] == [18, 92]


def test_should_show_nothing_of_the_old_topic_when_it_is_created_again(cluster: Cluster, topic: str) -> None:
    old = cluster.create_topic(topic)
    url = cluster.records_url(topic)
    assert http("POST", url, b'{"records": [{"value": "old"}]}', JSON_BODY).status == 200
    cluster.delete_topic(topic)
    wait_gone(cluster, topic, old)

    new = cluster.create_topic(topic)

    assert new != old
    assert http("GET", url).json["records"] == []
    assert http("GET", f"{url}?topicUid={old}").json["code"] == "StaleTopic"


def test_should_set_data_aside_when_its_topic_is_not_in_the_api_and_take_it_back(cluster: Cluster, topic: str) -> None:
    uid = cluster.create_topic(topic)
    url = cluster.records_url(topic)
    assert http("POST", url, b'{"records": [{"value": "kept"}]}', JSON_BODY).status == 200
    cluster.broker().stop()
    cluster.programs["operator"].kill()
    cluster.programs["api"].stop()
    (cluster.home / "api").rename(cluster.home / "api-with-topic")
    cluster.start_api()

    cluster.start_broker()

    wait_for(lambda: directories(cluster, "orphaned", uid) == [f"{uid}-0"], "the data is set aside")
    assert directories(cluster, "partitions", uid) == []
    metrics = f"{cluster.url()}/metrics"
    told = b'headrace_broker_orphaned_partitions{deletion_policy="Delete"} 0.0'
    wait_for(lambda: told not in http("GET", metrics).body, "it is told")

    cluster.broker().stop()
    # However long ago that was: what has returned while the broker was away is not deleted at its start.
    since = cluster.home / "broker-0" / "orphaned" / f"{uid}-0" / "orphaned-since"
    since.write_bytes(seal("orphaned-since", ["0"]))
    cluster.programs["api"].stop()
    (cluster.home / "api").rename(cluster.home / "api-without-topic")
    (cluster.home / "api-with-topic").rename(cluster.home / "api")
    cluster.start_api()
    cluster.start_operator()
    cluster.start_broker()

    cluster.wait_led(topic)
    assert [record["value"] for record in http("GET", cluster.records_url(topic)).json["records"]] == ["kept"]
    assert directories(cluster, "orphaned", uid) == []


def test_should_keep_the_present_spec_beside_the_data_when_the_topic_changes(cluster: Cluster, topic: str) -> None:
    uid = cluster.create_topic(topic)
    path = "/apis/headrace.io/v1alpha1/namespaces/default/topics/" + topic

    cluster.kube("PATCH", path, {"spec": {"deletionPolicy": "Retain", "durability": "Replicated"}})

    def described() -> dict[str, str]:
        description = cluster.home / "broker-0" / "partitions" / f"{uid}-0" / "partition.json"
        spec: dict[str, str] = json.loads(description.read_text())["spec"]
        return spec

    wait_for(lambda: described()["deletionPolicy"] == "Retain", "the description follows the topic")
    assert described()["durability"] == "Replicated", "it is written as a whole"
    assert http("POST", cluster.records_url(topic), b'{"records": [{"value": "on"}]}', JSON_BODY).status == 200
