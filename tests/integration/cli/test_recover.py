"""`headrace cluster recover` on real processes: PartitionSets that are deleted, placed anew, and put back in time."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.cluster import Cluster, http
from tests.support.command import Headrace
from tests.support.waiting import wait_for
from tests.support.world import JSON_BODY, PARTITION_SETS


def put(shared: Cluster, topic: str, **changes: dict[str, Any]) -> None:
    """Change fields of partitions, by number (`p0={...}`), upon the newest version of their set."""

    def written() -> bool:
        """Not where a broker or the operator was faster."""
        current = shared.partition_set(f"{topic}-0")
        for partition in current["spec"]["partitions"]:
            partition.update(changes[f"p{partition['id']}"])
        url = f"{shared.api_url}{PARTITION_SETS}/{topic}-0"
        answer = http("PUT", url, json.dumps(current).encode(), JSON_BODY)
        assert answer.status in (200, 409), answer.body
        return answer.status == 200

    wait_for(written, "the set is written")


def leaders(shared: Cluster, topic: str) -> list[dict[str, Any]]:
    return [partition["leader"] for partition in shared.partition_set(f"{topic}-0")["spec"]["partitions"]]


def led_by(seat: dict[str, Any], leader_epoch: int, partition_epoch: int) -> dict[str, Any]:
    return {
        "leader": seat,
        "isr": [seat],
        "replicas": [seat["broker"]],
        "leaderEpoch": leader_epoch,
        "partitionEpoch": partition_epoch,
    }


def knows_epoch(shared: Cluster, topic: str, epoch: int) -> bool:
    """Do both brokers know that every partition is led in this epoch?"""
    answers = [http("GET", f"{shared.url(broker)}/v1/namespaces/default/topics/{topic}").json for broker in (0, 1)]
    return all(each["leaderEpoch"] == epoch for answer in answers for each in answer["partitions"])


def offsets(shared: Cluster, topic: str, partition: int) -> Any:
    url = f"{shared.url()}/v1/namespaces/default/topics/{topic}/partitions/{partition}/offsets?timestamp=latest"
    return http("GET", url).json


def pause(shared: Cluster, topic: str) -> None:
    """From now on the operator leaves it alone, who would elect others, move it for balance, or ask for lost data."""
    place = f"/apis/headrace.io/v1alpha1/namespaces/default/topics/{topic}"
    shared.kube("PATCH", place, {"metadata": {"annotations": {"headrace.io/paused": "true"}}})
    wait_for(lambda: "PausedByAnnotation" in str(shared.kube("GET", place)["status"]), "the operator has seen it")


def resume(shared: Cluster, topic: str) -> None:
    place = f"/apis/headrace.io/v1alpha1/namespaces/default/topics/{topic}"
    shared.kube("PATCH", place, {"metadata": {"annotations": {"headrace.io/paused": None}}})
    wait_for(lambda: "PausedByAnnotation" not in str(shared.kube("GET", place)["status"]), "the operator has seen it")


@contextmanager
def asleep(shared: Cluster, broker: int | None) -> Iterator[None]:
    """It sees nothing of what happens in between; None: nobody sleeps."""
    processes = [] if broker is None else [shared.broker(broker).process]
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGCONT)


def make_anew(shared: Cluster, topic: str, **changes: dict[str, Any]) -> None:
    """Somebody deletes the set and makes another one by hand; of a topic that is paused."""
    found = shared.partition_set(f"{topic}-0")
    shared.kube("DELETE", f"{PARTITION_SETS}/{topic}-0")
    for partition in found["spec"]["partitions"]:
        partition.update(changes[f"p{partition['id']}"])
    kept = ("name", "namespace", "labels", "ownerReferences")
    metadata = {name: found["metadata"][name] for name in kept}
    shared.kube("POST", PARTITION_SETS, {**found, "metadata": metadata})


def seat_of(shared: Cluster, broker: int) -> dict[str, Any]:
    held = http("GET", f"{shared.url()}/v1/brokers/{broker}/held").json
    return {name: held[name] for name in ("broker", "incarnation")}


@pytest.mark.parametrize("first_is", [0, 1])
@pytest.mark.parametrize("misses_it", [None, 0, 1], ids=["all awake", "broker 0 asleep", "broker 1 asleep"])
def test_should_bring_back_what_was_placed_anew_and_read_all_of_it(
    headrace: Headrace, topic: str, shared: Cluster, misses_it: int | None, first_is: int
) -> None:
    assert headrace("topic", "create", topic, "--partitions", "2", "--replicas", "1").returncode == 0
    pause(shared, topic)
    first, second = seat_of(shared, first_is), seat_of(shared, 1 - first_is)
    put(shared, topic, p0=led_by(first, 5, 5), p1=led_by(second, 5, 5))
    wait_for(lambda: knows_epoch(shared, topic, 5), "brokers follow to epoch 5")
    for partition in (0, 1):
        done = headrace("produce", topic, "--partition", str(partition), stdin=f"of {partition}\n" * 50)
        assert done.returncode == 0, done.stderr

    # One where it was, in an epoch that its log left behind; the other on a broker that has none of its records.
    with asleep(shared, misses_it):
        make_anew(shared, topic, p0=led_by(first, 1, 2), p1=led_by(first, 1, 2))
    wait_for(lambda: "cluster recover" in offsets(shared, topic, 0).get("detail", ""), "partition 0 is refused")
    wait_for(lambda: offsets(shared, topic, 1).get("offset") == 0, "partition 1 is empty on its new broker")

    looked = headrace("cluster", "recover", topic)
    assert looked.returncode == 1
    assert (
        f"default/{topic}/0 can be recovered\n    the API says leader epoch 1, but brokers have seen 5" in looked.stdout
    )
    assert f"default/{topic}/1 can be recovered" in looked.stdout
    assert "nothing was changed" in looked.stderr

    recovered = headrace("cluster", "recover", topic, "--yes")
    assert recovered.returncode == 0, recovered.stderr
    assert recovered.stdout.endswith("2 partitions are online, 0 offline\n")
    read = headrace("consume", topic, "-o", "value").stdout.splitlines()
    assert sorted(read) == ["of 0"] * 50 + ["of 1"] * 50
    assert headrace("produce", topic, stdin="more\n").returncode == 0
    well = "2 partitions are online, 0 offline\n"
    wait_for(lambda: headrace("cluster", "recover", topic).stdout == well, "nothing is left to recover")
    resume(shared, topic)
    # The operator may be moving one of the two for balance just now, and its old broker may keep a copy aside.
    wait_for(lambda: headrace("cluster", "recover", topic).stdout.endswith(well), "it goes on under the operator")
    assert len(headrace("consume", topic, "-o", "value").stdout.splitlines()) == 101


def test_should_follow_an_api_that_was_put_back_in_time_under_live_brokers(
    headrace: Headrace, topic: str, shared: Cluster
) -> None:
    assert headrace("topic", "create", topic, "--partitions", "1", "--replicas", "1").returncode == 0
    pause(shared, topic)
    (seat,) = leaders(shared, topic)
    put(shared, topic, p0=led_by(seat, 7, 7))
    wait_for(lambda: knows_epoch(shared, topic, 7), "brokers follow to epoch 7")
    assert headrace("produce", topic, stdin="kept\n").returncode == 0
    put(shared, topic, p0=led_by(seat, 2, 2))

    assert headrace("cluster", "recover", topic, "-y").returncode == 0
    (state,) = shared.partition_set(f"{topic}-0")["spec"]["partitions"]
    assert min(state["leaderEpoch"], state["partitionEpoch"]) >= 8, "above all that brokers have seen"
    assert headrace("consume", topic, "-o", "value").stdout == "kept\n"

    later = state["leaderEpoch"] + 1, state["partitionEpoch"] + 1
    put(shared, topic, p0=led_by(seat_of(shared, 1 - seat["broker"]), *later))
    wait_for(lambda: knows_epoch(shared, topic, later[0]), "brokers follow to the next epoch")
    assert headrace("produce", topic, stdin="of another history\n").returncode == 0
    told = (
        f"default/{topic}/0: broker {seat['broker']}, no replica of it, holds records that nobody reads:"
        " offsets up to 1 (exclusive), leader epoch 7\n1 partition is online, 0 offline\n"
    )
    wait_for(lambda: headrace("cluster", "recover", topic).stdout == told, "it tells of what nobody reads")


def test_should_not_fail_because_of_a_topic_that_was_never_placed(
    headrace: Headrace, topic: str, shared: Cluster
) -> None:
    shared.create_topic(topic, wait=False, replicas=7)
    place = f"/apis/headrace.io/v1alpha1/namespaces/default/topics/{topic}"
    wait_for(lambda: "InsufficientBrokers" in str(shared.kube("GET", place)["status"]), "the operator says why")
    done = headrace("cluster", "recover", topic)
    assert done.returncode == 0, done.stdout
    said = f"default/{topic}: 1 partition was never placed on a broker, nothing is to be recovered; "
    reason = "the topic is not Ready: InsufficientBrokers (spec.replicas is 7, "
    assert done.stdout.startswith(said + reason)
    assert done.stdout.endswith(")\n0 partitions are online, 0 offline\n")
    shared.delete_topic(topic)


def test_should_say_what_is_no_topic(headrace: Headrace) -> None:
    done = headrace("cluster", "recover", "no-such-topic", "--yes")
    assert (done.returncode, done.stdout) == (1, "")
    assert "there is no topic no-such-topic in namespace default" in done.stderr


def test_should_tell_of_any_broker_what_it_holds_and_of_none_that_there_is_not(shared: Cluster) -> None:
    for asked in (0, 1):
        told = http("GET", f"{shared.url(0)}/v1/brokers/{asked}/held")
        assert (told.status, told.json["broker"]) == (200, asked)
    assert http("GET", f"{shared.url()}/v1/brokers/9/held").json["code"] == "UnknownBroker"
    assert http("GET", f"{shared.url()}/v1/brokers/x/held").status == 400
