"""Brokers that `kubectl scale` takes away from topics that have replicas on all of them: the wait, and its end."""

import json
from pathlib import Path
from typing import Any

from tests.support.dev import Dev, dev_home, is_alive
from tests.support.waiting import wait_for

TOPIC = "orders"


def conditions(dev: Dev) -> dict[str, Any]:
    status = json.loads(dev.kubectl("get", "topic", TOPIC, "-o", "json"))["status"]
    return {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}


def test_should_let_a_broker_wait_that_writes_need_until_its_pod_is_taken_away(tmp_path: Path) -> None:
    with dev_home(tmp_path / "home") as dev:
        dev.start_with_topic(TOPIC, partitions=2, brokers=3, replicas=3, min_insync_replicas=3)
        leaving = dev.broker_pids()[2]
        assert leaving is not None
        dev.kubectl("scale", "sts", "headrace", "--replicas", "2")
        wait_for(lambda: conditions(dev)["Reassigning"] == ("True", "WaitingForBrokers"), "it says why it waits")
        wait_for(lambda: "Terminating" in dev.kubectl("get", "pod", "headrace-2"), "its Pod is to go")
        assert is_alive(leaving)
        dev.kubectl("delete", "pod", "headrace-2", "--force", "--grace-period=0")
        wait_for(lambda: not is_alive(leaving) and 2 not in dev.broker_pids(), "it is gone")
        wait_for(lambda: conditions(dev)["UnderReplicated"][0] == "True", "it is missed")
        smaller = json.dumps({"spec": {"replicas": 2, "minInsyncReplicas": 1}})
        dev.kubectl("patch", "topic", TOPIC, "--type", "merge", "-p", smaller)
        wait_for(lambda: conditions(dev)["UnderReplicated"][0] == "False", "two replicas are enough")
        wait_for(lambda: conditions(dev)["Ready"][0] == "True", "it is ready")


def test_should_let_a_broker_go_that_nobody_can_replace_nor_needs_for_writes(tmp_path: Path) -> None:
    with dev_home(tmp_path / "home") as dev:
        dev.start_with_topic(TOPIC, partitions=2, brokers=3, replicas=3)
        leaving = dev.broker_pids()[2]
        assert leaving is not None
        dev.kubectl("scale", "sts", "headrace", "--replicas", "2")
        wait_for(lambda: not is_alive(leaving) and 2 not in dev.broker_pids(), "it is gone, and has waited for nobody")
        wait_for(lambda: conditions(dev)["Reassigning"] == ("True", "WaitingForBrokers"), "it says what is missing")
        wait_for(lambda: conditions(dev)["Ready"][0] == "True", "it is led")
        assert conditions(dev)["UnderReplicated"] == ("True", "ReplicasNotInSync"), "and acks=all is taken"
