"""Data is deleted when its Topic is, and only then; what no API object names any more is kept aside."""

from tests.support.cluster import Cluster, http
from tests.support.waiting import wait_for

JSON = {"Content-Type": "application/json"}


def directories(cluster: Cluster, place: str) -> list[str]:
    return sorted(path.name for path in (cluster.home / "broker-0" / place).iterdir())


def test_should_delete_the_data_when_the_topic_is_deleted(cluster: Cluster) -> None:
    uid = cluster.create_topic(partitions=2)
    assert directories(cluster, "partitions") == [f"{uid}-0", f"{uid}-1"]

    cluster.delete_topic()

    wait_for(lambda: not directories(cluster, "partitions"), "the data is deleted")
    assert directories(cluster, "orphaned") == []
    topics = "/apis/headrace.io/v1alpha1/namespaces/default/topics"
    wait_for(lambda: not cluster.kube("GET", topics)["items"], "the topic's finalizer is gone")
    answer = http("GET", f"{cluster.url()}/v1/namespaces/default/topics/flights")
    assert answer.json["code"] == "UnknownTopic"
    metrics = http("GET", f"{cluster.url()}/metrics").body.decode()
    assert 'topic="flights"' not in metrics


def test_should_show_nothing_of_the_old_topic_when_it_is_created_again(cluster: Cluster) -> None:
    old = cluster.create_topic()
    url = cluster.records_url()
    assert http("POST", url, b'{"records": [{"value": "old"}]}', JSON).status == 200
    cluster.delete_topic()
    wait_for(lambda: not directories(cluster, "partitions"), "the data is deleted")
    topics = "/apis/headrace.io/v1alpha1/namespaces/default/topics"
    wait_for(lambda: not cluster.kube("GET", topics)["items"], "the topic is gone")

    new = cluster.create_topic()

    assert new != old
    assert http("GET", url).json["records"] == []
    assert http("GET", f"{url}?topicUid={old}").json["code"] == "StaleTopic"


def test_should_set_data_aside_when_its_topic_is_not_in_the_api_and_take_it_back(cluster: Cluster) -> None:
    uid = cluster.create_topic()
    url = cluster.records_url()
    assert http("POST", url, b'{"records": [{"value": "kept"}]}', JSON).status == 200
    cluster.broker().stop()
    cluster.programs["operator"].kill()
    backup = cluster.programs["api"]
    backup.stop()
    (cluster.home / "api").rename(cluster.home / "api-with-topic")
    cluster.start_api()

    cluster.start_broker()

    wait_for(lambda: directories(cluster, "orphaned") == [f"{uid}-0"], "the data is set aside")
    assert directories(cluster, "partitions") == []
    metrics = http("GET", f"{cluster.url()}/metrics").body.decode()
    assert "headrace_broker_orphaned_partitions 1.0" in metrics

    cluster.broker().stop()
    cluster.programs["api"].stop()
    (cluster.home / "api").rename(cluster.home / "api-without-topic")
    (cluster.home / "api-with-topic").rename(cluster.home / "api")
    cluster.start_api()
    cluster.start_operator()
    cluster.start_broker()

    cluster.wait_led()
    assert [record["value"] for record in http("GET", cluster.records_url()).json["records"]] == ["kept"]
    assert directories(cluster, "orphaned") == []
