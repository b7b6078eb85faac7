"""What brokers say of the partitions that they lead, and what they leave out."""

import json
from collections.abc import Iterator

import pytest

from tests.support.cluster import Answer, Cluster, http, running_cluster


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("watermarks"), brokers=2) as cluster:
        cluster.create_topic(partitions=2)
        yield cluster


def asked(cluster: Cluster, broker: object, body: object, *, of: int = 0) -> Answer:
    return http("POST", f"{cluster.url(of)}/v1/brokers/{broker}/watermarks", json.dumps(body).encode())


def test_should_say_how_far_the_records_reach_that_it_leads(running: Cluster) -> None:
    running.produce(5)
    records = running.records_url()
    assert http("DELETE", f"{records}?beforeOffset=2").status == 200
    uid = http("GET", f"{running.url()}/v1/namespaces/default/topics/flights").json["uid"]
    leader = next(broker for broker in (0, 1) if running.url(broker) == running.leader_url())
    questions = [{"topicUid": which, "partition": 0} for which in (uid, "another")]
    known = [{"topicUid": uid, "partition": 0, "logStartOffset": 2, "highWatermark": 5}]
    for broker, answered in ((leader, known), (1 - leader, [])):
        for of in (0, 1):
            answer = asked(running, broker, {"partitions": questions}, of=of)
            assert (answer.status, answer.json) == (200, {"partitions": answered})


@pytest.mark.parametrize("body", [None, [], {}, {"partitions": [{"topicUid": "u"}]}])
def test_should_refuse_what_is_no_question(running: Cluster, body: object) -> None:
    answer = asked(running, 0, body)
    assert (answer.status, answer.json["code"]) == (400, "InvalidRequest")


def test_should_refuse_what_is_no_json(running: Cluster) -> None:
    answer = http("POST", f"{running.url()}/v1/brokers/0/watermarks", b"{")
    assert (answer.status, answer.json["code"]) == (400, "InvalidRequest")


def test_should_know_whom_it_can_ask(running: Cluster) -> None:
    assert asked(running, 9, {"partitions": []}).json["code"] == "UnknownBroker"
