"""What brokers promise of partitions, and what they do not."""

import json

import pytest

from tests.support.cluster import Answer, Cluster, http


def asked(cluster: Cluster, broker: object, body: object) -> Answer:
    return http("POST", f"{cluster.url(0)}/v1/brokers/{broker}/promises", json.dumps(body).encode())


def test_should_promise_nothing_of_what_somebody_leads_or_what_it_does_not_hold(shared: Cluster, topic: str) -> None:
    uid = shared.create_topic(topic)
    questions = [
        {"topicUid": which, "partition": 0, "leaderEpoch": 1, "partitionEpoch": 1} for which in (uid, "another")
    ]
    for broker in (0, 1):
        answer = asked(shared, broker, {"partitions": questions})
        assert answer.status == 200, answer.body
        assert answer.json["broker"] == broker
        assert answer.json["partitions"] == []


@pytest.mark.parametrize("body", [None, [], {}, {"partitions": [{"topicUid": "u"}]}])
def test_should_refuse_what_is_no_question(shared: Cluster, body: object) -> None:
    answer = asked(shared, 0, body)
    assert (answer.status, answer.json["code"]) == (400, "InvalidRequest")
    assert "topicUid, partition, leaderEpoch, partitionEpoch" in answer.json["detail"]


def test_should_know_whom_it_can_ask(shared: Cluster) -> None:
    assert asked(shared, 9, {"partitions": []}).json["code"] == "UnknownBroker"
    assert asked(shared, "x", {"partitions": []}).status == 400
