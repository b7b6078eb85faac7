"""`examples/group_member.py` shares a topic with another of itself, and takes over what a dead one had."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.cluster import Cluster, Program, http, running_cluster
from tests.support.group_calls import GroupCalls
from tests.support.waiting import wait_for

_EXAMPLE = Path(__file__).parents[3] / "examples/group_member.py"
_GROUPS = "/apis/headrace.io/v1alpha1/namespaces/default/consumergroups"
_PARTITIONS = 4


@dataclass
class Reader:
    program: Program

    @property
    def records(self) -> list[tuple[int, int]]:
        """(partition, offset) of each that it has written out."""
        lines = [line.split(" ", 2) for line in self.program.log.splitlines(keepends=True) if line.endswith("\n")]
        return [(int(line[0]), int(line[1])) for line in lines if len(line) == 3]

    @property
    def partitions(self) -> set[int]:
        return {partition for partition, _ in self.records}


@contextmanager
def reading(cluster: Cluster, name: str) -> Iterator[Reader]:
    log_file = cluster.home / f"{name}.log"
    with log_file.open("wb") as log:
        command = [sys.executable, str(_EXAMPLE), cluster.url(), "flights", "billing"]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    program = Program(name, process, log_file)
    try:
        yield Reader(program)
    finally:
        if program.is_running:
            program.kill()


def produce(cluster: Cluster, values: int) -> None:
    """So many records to each partition."""
    body = "".join(f'{{"value": "v{value}"}}\n' for value in range(values)).encode()
    for partition in range(_PARTITIONS):
        answer = http("POST", cluster.records_url("flights", partition), body, {"Content-Type": "application/x-ndjson"})
        assert answer.status == 200, answer.body


def members(calls: GroupCalls) -> list[int]:
    """How many partitions each has."""
    return [sum(len(each["partitions"]) for each in member["owned"]) for member in calls.get()["members"]]


def test_should_have_sixty_lines_and_nothing_of_ours() -> None:
    text = _EXAMPLE.read_text()
    assert len(text.splitlines()) <= 60
    assert "import headrace" not in text
    assert "from headrace" not in text


@pytest.mark.timeout(180)
def test_should_share_a_topic_and_take_over_from_the_dead(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        cluster.create_topic(partitions=_PARTITIONS)
        manifest = {
            "apiVersion": "headrace.io/v1alpha1",
            "kind": "ConsumerGroup",
            "metadata": {"name": "billing"},
            "spec": {"sessionTimeout": "10s"},
        }
        cluster.kube("POST", _GROUPS, manifest)
        calls = GroupCalls([cluster.url()])
        with reading(cluster, "one") as one, reading(cluster, "two") as two:
            wait_for(lambda: calls.once("GET").status == 200 and members(calls) == [2, 2], "both share the topic")
            produce(cluster, 50)
            wait_for(lambda: len(one.records) + len(two.records) == 4 * 50, "all is read, once")
            assert one.partitions.isdisjoint(two.partitions)
            wait_for(lambda: [*calls.offsets().values()] == [50] * _PARTITIONS, "all is committed")
            one.program.kill()
            produce(cluster, 50)
            everything = {(partition, offset) for partition in range(_PARTITIONS) for offset in range(100)}
            wait_for(lambda: {*one.records, *two.records} == everything, "the other reads what the dead one does not")
            # What the dead one had committed was not read again: it was killed with nothing in hand.
            assert len(one.records) + len(two.records) == len(everything)
            two.program.process.send_signal(signal.SIGTERM)
            assert two.program.wait() == 0, two.program.log
            wait_for(lambda: calls.get()["members"] == [], "it has left")
        assert calls.offsets() == {("flights", partition): 100 for partition in range(_PARTITIONS)}
