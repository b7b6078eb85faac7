"""A broker dies, stops, comes back: nothing that was acknowledged is lost, and nobody takes its place by mistake."""

import json
import os
import signal
from pathlib import Path

from tests.support.cluster import Cluster, Program, http
from tests.support.waiting import wait_for

NDJSON = {"Content-Type": "application/x-ndjson"}


def produce(cluster: Cluster, *values: str) -> None:
    body = b"".join(json.dumps({"value": value}).encode() + b"\n" for value in values)
    answer = http("POST", cluster.records_url(), body, NDJSON)
    assert answer.status == 200, answer.body


def values(cluster: Cluster) -> list[str]:
    return [record["value"] for record in http("GET", cluster.records_url()).json["records"]]


def partition(cluster: Cluster) -> dict[str, object]:
    state: dict[str, object] = cluster.partition_set()["spec"]["partitions"][0]
    return state


def start_failing(cluster: Cluster, *options: str) -> str:
    """What a broker says that cannot start."""
    program = cluster.start_broker(0, *options, name="second", ready=False)
    assert program.wait() == 1
    assert "Traceback" not in program.log
    return program.log.splitlines()[-1]


def test_should_lose_nothing_and_elect_itself_when_it_comes_back_after_kill_9(cluster: Cluster) -> None:
    cluster.create_topic()
    produce(cluster, "a", "b")
    assert partition(cluster)["leader"] == {"broker": 0, "incarnation": 1}

    for life in (2, 3):
        cluster.broker().kill()
        cluster.start_broker()
        cluster.wait_led()
        state = partition(cluster)
        assert state["leader"] == {"broker": 0, "incarnation": life}
        assert state["isr"] == [{"broker": 0, "incarnation": life}]
        assert state["leaderEpoch"] == life
        assert values(cluster) == ["a", "b"]
    produce(cluster, "c")
    assert values(cluster) == ["a", "b", "c"]
    epochs = http("GET", cluster.records_url() + "?offset=2").headers["headrace-leader-epoch"]
    assert epochs == "3"


def test_should_stop_cleanly_and_answer_what_is_in_flight_when_it_is_told_to(cluster: Cluster) -> None:
    cluster.create_topic()
    produce(cluster, "a")

    assert cluster.broker().stop() == 0

    assert (cluster.home / "broker-0" / "clean-stop").exists()
    lease = cluster.kube("GET", "/apis/coordination.k8s.io/v1/namespaces/default/leases/headrace-broker-0")
    assert lease["metadata"]["annotations"]["headrace.io/clean"] == "true"
    assert lease["metadata"]["annotations"]["headrace.io/draining"] == "true"
    cluster.start_broker()
    cluster.wait_led()
    assert values(cluster) == ["a"]
    assert "scanned" not in cluster.broker().log


def test_should_say_what_may_be_lost_when_it_comes_back_with_an_empty_disk(cluster: Cluster) -> None:
    cluster.create_topic()
    produce(cluster, "a")
    cluster.broker().kill()

    cluster.start_broker(0, "--data", str(cluster.home / "other-disk"))

    cluster.wait_led()
    assert partition(cluster)["leader"] == {"broker": 0, "incarnation": 2}

    def warned() -> bool:
        events = cluster.kube("GET", "/api/v1/namespaces/default/events")["items"]
        return any(
            event["reason"] == "RecordsMayBeLost" and "its directory is not on this disk" in event["message"]
            for event in events
        )

    wait_for(warned, "the owner of the topic is told")
    assert values(cluster) == []


def test_should_refuse_to_start_in_a_sentence(cluster: Cluster, tmp_path: Path) -> None:
    assert "is in use" in start_failing(cluster)

    port = cluster.url().rpartition(":")[2]
    said = start_failing(cluster, "--data", str(tmp_path / "a"), "--port", port)
    assert said.startswith(f"headrace-broker: cannot listen on 127.0.0.1:{port}: ")

    (tmp_path / "busy").mkdir()
    (tmp_path / "busy" / "thesis.tex").touch()
    assert "is no data directory" in start_failing(cluster, "--data", str(tmp_path / "busy"))

    said = start_failing(cluster, "--data", str(tmp_path / "b"), "--kubeconfig", str(tmp_path / "none"))
    assert "no such file" in said


def test_should_exit_when_a_later_life_of_the_same_broker_appears(cluster: Cluster, tmp_path: Path) -> None:
    first = cluster.broker()
    second = cluster.start_broker(0, "--data", str(tmp_path / "second"), name="second")
    assert first.wait() == 1
    assert "must not go on" in first.log
    assert second.is_running


def test_should_go_on_serving_while_the_api_server_is_away(cluster: Cluster) -> None:
    cluster.create_topic()
    url = cluster.records_url()
    api: Program = cluster.programs["api"]
    os.kill(api.pid, signal.SIGSTOP)
    try:
        assert http("POST", url, b'{"value": "during"}\n', NDJSON).status == 200
        assert [record["value"] for record in http("GET", url).json["records"]] == ["during"]
    finally:
        os.kill(api.pid, signal.SIGCONT)
    api.kill()
    wait_for(lambda: "lease not renewed" in cluster.broker().log, "the outage is noticed")
    assert http("POST", url, b'{"value": "still"}\n', NDJSON).status == 200
    cluster.start_api()
    cluster.create_topic("afterwards")
