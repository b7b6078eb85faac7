"""What brokers promise of partitions, and what they do not."""

import json
from collections.abc import Iterator

import pytest

from tests.support.cluster import Answer, Cluster, http, running_cluster


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("promises"), brokers=2) as cluster:
        cluster.create_topic(partitions=1)
        yield cluster


def asked(cluster: Cluster, broker: object, body: object) -> Answer:
    return http("POST", f"{cluster.url(0)}/v1/brokers/{broker}/promises", json.dumps(body).encode())


def test_should_promise_nothing_of_what_somebody_leads_or_what_it_does_not_hold(running: Cluster) -> None:
    uid = http("GET", f"{running.url(0)}/v1/namespaces/default/topics/flights").json["uid"]
    questions = [
        {"topicUid": which, "partition": 0, "leaderEpoch": 1, "partitionEpoch": 1} for which in (uid, "another")
    ]
    for broker in (0, 1):
        answer = asked(running, broker, {"partitions": questions})
        assert answer.status == 200, answer.body
        assert answer.json["broker"] == broker
        assert answer.json["partitions"] == []


@pytest.mark.parametrize("body", [None, [], {}, {"partitions": [{"topicUid": "u"}]}])
def test_should_refuse_what_is_no_question(running: Cluster, body: object) -> None:
    answer = asked(running, 0, body)
    assert (answer.status, answer.json["code"]) == (400, "InvalidRequest")
    assert "topicUid, partition, leaderEpoch, partitionEpoch" in answer.json["detail"]


def test_should_know_whom_it_can_ask(running: Cluster) -> None:
    assert asked(running, 9, {"partitions": []}).json["code"] == "UnknownBroker"
    assert asked(running, "x", {"partitions": []}).status == 400
