"""A broker dies, stops, comes back: nothing that was acknowledged is lost, and nobody takes its place by mistake."""

import json
import os
import signal
from itertools import count
from pathlib import Path
from typing import Any

from headrace.http2.blocking_transport import BlockingTransport
from tests.faults.unruly_api import Answer, unruly
from tests.support.batches import batch_of
from tests.support.cluster import Cluster, Program, http, produce
from tests.support.patience import patient
from tests.support.waiting import wait_for
from tests.support.world import BATCH_BODY, LEASES, NDJSON_BODY
from tests.support.writers import Writer, progress_since_now, read_from, writing


def values(cluster: Cluster, topic: str) -> list[str]:
    return [record["value"] for record in http("GET", cluster.records_url(topic)).json["records"]]


def partition(cluster: Cluster, topic: str) -> dict[str, Any]:
    state: dict[str, Any] = cluster.partition_set(f"{topic}-0")["spec"]["partitions"][0]
    return state


def start_failing(cluster: Cluster, *options: str) -> str:
    """What a broker says that cannot start."""
    program = cluster.start_broker(0, *options, name="second", ready=False)
    assert program.wait() == 1
    assert "Traceback" not in program.log
    return program.log.splitlines()[-1]


def test_should_lose_nothing_and_elect_itself_when_it_comes_back_after_kill_9(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic)
    produce(cluster.records_url(topic), "a", "b")
    first = partition(cluster, topic)["leader"]["incarnation"]
    trimmed, directory = trimmed_topic(cluster, f"{topic}-trimmed")

    for lives in (1, 2):
        cluster.broker().kill()
        assert [path.stem for path in directory.glob("*.log")] == [f"{4:020d}"]
        cluster.start_broker()
        cluster.wait_led(topic)
        state = partition(cluster, topic)
        assert state["leader"] == {"broker": 0, "incarnation": first + lives}
        assert state["isr"] == [state["leader"]]
        assert state["leaderEpoch"] == 1 + lives
        assert values(cluster, topic) == ["a", "b"]
        cluster.wait_led(trimmed)
        url = cluster.records_url(trimmed)
        assert [record["offset"] for record in http("GET", url).json["records"]] == [5]
        gone = http("GET", f"{url}?offset=4")
        assert (gone.status, gone.json["logStartOffset"], gone.json["highWatermark"]) == (416, 5, 6)
    produce(cluster.records_url(topic), "c")
    assert values(cluster, topic) == ["a", "b", "c"]
    assert http("GET", cluster.records_url(topic)).headers["headrace-leader-epoch"] == "3"


def trimmed_topic(cluster: Cluster, name: str) -> tuple[str, Path]:
    """With three segments of two records, of which the first five records are deleted; its name and directory."""
    uid = cluster.create_topic(name, segment={"bytes": "1Mi"})
    url = cluster.records_url(name)
    for _ in range(6):
        assert http("POST", url, batch_of(b"x" * 400_000), BATCH_BODY).status == 200
    directory = cluster.home / "broker-0" / "partitions" / f"{uid}-0"
    assert len(list(directory.glob("*.log"))) == 3
    assert http("DELETE", f"{url}?beforeOffset=5").json["logStartOffset"] == 5
    return name, directory


def test_should_find_everything_at_once_when_it_was_told_to_stop(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic)
    produce(cluster.records_url(topic), "a")

    assert cluster.broker().stop() == 0

    assert (cluster.home / "broker-0" / "clean-stop").exists()
    notes = cluster.kube("GET", f"{LEASES}/headrace-broker-0")["metadata"]["annotations"]
    assert (notes["headrace.io/clean"], notes["headrace.io/draining"]) == ("true", "true")
    cluster.start_broker()
    cluster.wait_led(topic)
    assert values(cluster, topic) == ["a"]
    assert "scanned" not in cluster.broker().log


def test_should_answer_long_polls_and_end_streams_when_it_is_told_to_stop(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic)
    produce(cluster.records_url(topic), "a")
    with BlockingTransport() as transport:
        pending = transport.start("GET", f"{cluster.records_url(topic)}?offset=1&maxWaitMs=60000")
        stream = transport.start("GET", f"{cluster.records_url(topic)}?watch=true")
        metrics = f"{cluster.url()}/metrics"
        wait_for(
            lambda: b"\nheadrace_broker_watches 1.0" in transport.request("GET", metrics).body, "the stream is open"
        )
        assert cluster.broker().stop() == 0
        assert json.loads(pending.result(patient(30)).body)["records"] == []
        assert json.loads(stream.result(patient(30)).body.splitlines()[0])["value"] == "a"
    cluster.start_broker()


def test_should_fail_no_request_for_good_when_it_is_restarted_under_load(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, partitions=3)
    writers = [Writer(number, cluster.records_url(topic, number)) for number in range(3)]
    with writing(writers), BlockingTransport() as transport:
        wait_for(progress_since_now(writers, 100), "all are writing")
        poll = transport.start("GET", f"{cluster.records_url(topic)}?offset=latest&minBytes=9999999&maxWaitMs=60000")
        assert cluster.broker().stop() == 0
        assert poll.result(patient(30)).status == 200, "what was asked is answered"
        cluster.start_broker()
        cluster.wait_led(topic, 3)
        for writer in writers:
            writer.url = cluster.records_url(topic, writer.partition)
        wait_for(progress_since_now(writers, 100), "all are writing again")
    for writer in writers:
        assert writer.failures, "it has met a broker that stops"
        assert [error for error in writer.failures if not error.retriable] == []
        written = read_from(writer, 0)
        assert [entry for entry in writer.acknowledged if entry not in written] == []


def test_should_say_what_may_be_lost_when_it_comes_back_with_an_empty_disk(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic)
    produce(cluster.records_url(topic), "a")
    cluster.broker().kill()

    cluster.start_broker(0, "--data", str(cluster.home / "other-disk"))

    cluster.wait_led(topic)

    def warned() -> bool:
        events = cluster.kube("GET", "/api/v1/namespaces/default/events")["items"]
        mine = [event for event in events if event["involvedObject"]["name"] == topic]
        return any(
            event["reason"] == "RecordsMayBeLost" and "its directory is not on this disk" in event["message"]
            for event in mine
        )

    wait_for(warned, "the owner of the topic is told")
    assert values(cluster, topic) == []
    cluster.broker().stop()
    cluster.start_broker()


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
    second.stop()
    cluster.start_broker()


def test_should_go_on_serving_while_the_api_server_is_away(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic)
    url = cluster.records_url(topic)
    api: Program = cluster.programs["api"]
    os.kill(api.pid, signal.SIGSTOP)
    try:
        assert http("POST", url, b'{"value": "during"}\n', NDJSON_BODY).status == 200
        assert [record["value"] for record in http("GET", url).json["records"]] == ["during"]
    finally:
        os.kill(api.pid, signal.SIGCONT)
    api.kill()
    wait_for(lambda: "lease not renewed" in cluster.broker().log, "the outage is noticed")
    assert http("POST", url, b'{"value": "still"}\n', NDJSON_BODY).status == 200
    cluster.start_api()
    cluster.create_topic(f"{topic}-after")


def test_should_wait_for_an_api_server_that_is_away_until_it_is_told_to_stop(cluster: Cluster, tmp_path: Path) -> None:
    elsewhere = ("--data", str(tmp_path / "data"), "--cluster", "elsewhere")
    cluster.programs["api"].kill()
    try:
        waiting = cluster.start_broker(9, *elsewhere, ready=False)
        wait_for(lambda: "waiting for the API server to take the lease" in waiting.log, "it waits")
        port = next(line for line in waiting.log.splitlines() if "listens on port" in line).rpartition(":")[2]
        assert http("GET", f"http://127.0.0.1:{port}/healthz").status == 200, "it is not to be killed"
        assert http("GET", f"http://127.0.0.1:{port}/readyz").status == 503
        assert waiting.stop() == 0
        assert not (tmp_path / "data" / "clean-stop").exists()

        secret = cluster.start_broker(9, *elsewhere, "--tls-secret", "missing", ready=False)
        wait_for(lambda: "waiting for the API server to read the certificate" in secret.log, "it waits for that, too")
        assert secret.stop() == 0
        waiting = cluster.start_broker(9, *elsewhere, ready=False)
        wait_for(lambda: "waiting for the API server" in waiting.log, "it waits again")
    finally:
        cluster.start_api()
    cluster.wait_ready(waiting)
    assert waiting.stop() == 0
    assert (tmp_path / "data" / "clean-stop").exists()


def test_should_not_call_a_disk_clean_when_it_has_not_come_to_what_a_crash_left(
    cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    cluster.create_topic(topic)
    produce(cluster.records_url(topic), "a")
    cluster.broker().kill()
    with unruly(cluster.api_url) as api:
        # The first answer tells which lives there were; what is to be opened comes after it.
        asked = count()
        api.rule = lambda _method, path, _query: Answer(503) if "partitionsets" in path and next(asked) else None
        elsewhere = tmp_path / "kubeconfig"
        elsewhere.write_text(cluster.kubeconfig.read_text().replace(cluster.api_url, f"http://127.0.0.1:{api.port}"))
        broker = cluster.start_broker(0, "--kubeconfig", str(elsewhere), ready=False)
        wait_for(lambda: "begins incarnation" in broker.log, "it has a life")
        assert broker.stop() == 0
    assert " is ready" not in broker.log
    assert not (cluster.home / "broker-0" / "clean-stop").exists()
    cluster.start_broker()
    cluster.wait_led(topic)
    assert values(cluster, topic) == ["a"]


def test_should_wait_for_a_broker_that_is_about_to_end_when_both_have_one_disk(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic)
    before = cluster.broker()
    after = cluster.start_broker(name="broker-after", ready=False)
    wait_for(lambda: "waiting: the data directory" in after.log, "it waits")
    before.kill()
    cluster.wait_ready(after)
    after.stop()
    cluster.start_broker()
    cluster.wait_led(topic)


def test_should_stop_while_it_waits_for_a_broker_that_has_the_same_disk(cluster: Cluster) -> None:
    after = cluster.start_broker(name="broker-after", ready=False)
    wait_for(lambda: "waiting: the data directory" in after.log, "it waits")
    assert after.stop() == 0
    assert "headrace-broker: " not in after.log
    assert cluster.broker().is_running
