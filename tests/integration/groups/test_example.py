"""`examples/group_member.py` shares a topic with another of itself, and takes over what a dead one had."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pytest

from tests.support.cluster import Cluster, Program, produce, running_cluster
from tests.support.group_calls import GroupCalls
from tests.support.patience import patient
from tests.support.waiting import wait_for
from tests.support.world import CONSUMER_GROUPS

_EXAMPLE = Path(__file__).parents[3] / "examples/group_member.py"
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


def fill(cluster: Cluster, values: int) -> None:
    """So many records to each partition."""
    for partition in range(_PARTITIONS):
        produce(cluster.records_url("flights", partition), *(f"v{value}" for value in range(values)))


def members(calls: GroupCalls) -> list[int]:
    """How many partitions each has."""
    return [sum(len(each["partitions"]) for each in member["owned"]) for member in calls.get()["members"]]


def test_should_have_sixty_lines_and_nothing_of_ours() -> None:
    text = _EXAMPLE.read_text()
    assert len(text.splitlines()) <= 60
    assert "import headrace" not in text
    assert "from headrace" not in text


def test_should_share_a_topic_and_take_over_from_the_dead(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        cluster.create_topic(partitions=_PARTITIONS)
        manifest = {
            "apiVersion": "headrace.io/v1alpha1",
            "kind": "ConsumerGroup",
            "metadata": {"name": "billing"},
            "spec": {"sessionTimeout": "10s"},
        }
        cluster.kube("POST", CONSUMER_GROUPS, manifest)
        calls = GroupCalls([cluster.url()])
        with reading(cluster, "one") as one, reading(cluster, "two") as two:
            wait_for(lambda: calls.once("GET").status == 200 and members(calls) == [2, 2], "both share the topic")
            fill(cluster, 50)
            wait_for(lambda: len(one.records) + len(two.records) == 4 * 50, "all is read, once")
            assert one.partitions.isdisjoint(two.partitions)
            wait_for(lambda: [*calls.offsets().values()] == [50] * _PARTITIONS, "all is committed")
            one.program.kill()
            fill(cluster, 50)
            everything = {(partition, offset) for partition in range(_PARTITIONS) for offset in range(100)}
            wait_for(lambda: {*one.records, *two.records} == everything, "the other reads what the dead one does not")
            # What the dead one had committed was not read again: it was killed with nothing in hand.
            assert len(one.records) + len(two.records) == len(everything)
            # It writes out first: told to end in between, it would leave the rest to whoever comes next.
            ends = {("flights", partition): 100 for partition in range(_PARTITIONS)}
            wait_for(lambda: calls.offsets() == ends, "all is committed again")
            two.program.process.send_signal(signal.SIGTERM)
            assert two.program.wait() == 0, two.program.log
            wait_for(lambda: calls.get()["members"] == [], "it has left")
        assert calls.offsets() == ends


class Silent(BaseHTTPRequestHandler):
    """One broker that answers what it is told to; None: nothing ever."""

    answers: ClassVar[dict[str, tuple[int, object] | None]] = {}
    asked: ClassVar[list[str]] = []

    def _answer(self) -> None:
        kind = f"{self.command} {urlsplit(self.path).path.rsplit('/', 1)[-1]}"
        if self.command == "PUT" or (self.command == "DELETE"):
            kind = self.command
        self.asked.append(kind)
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        told = self.answers.get(kind)
        if told is None:
            self.close_connection = True
            return
        status, body = told
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815

    def log_message(self, *_: Any) -> None:
        """Nowhere."""


@pytest.fixture
def broker() -> Iterator[str]:
    Silent.answers, Silent.asked = {}, []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Silent)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@contextmanager
def alone(url: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, str(_EXAMPLE), url, "flights", "billing"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True) as program:
        try:
            yield program
        finally:
            program.kill()


_MINE = [{"topic": "flights", "topicUid": "u", "partitions": [0]}]


def told(revision: int, session_ms: int = 45_000) -> tuple[int, object]:
    assignment = _MINE if revision else []
    mark = {"memberEpoch": 1, "revision": revision}
    return 200, {**mark, "assignment": assignment, "heartbeatMs": 3_000, "sessionMs": session_ms}


def test_should_end_when_it_is_told_to_though_nobody_answers(broker: str) -> None:
    with alone(broker) as program:
        wait_for(lambda: "PUT" in Silent.asked, "it tries to join")
        program.send_signal(signal.SIGTERM)
        assert program.wait(patient(60)) == 0
        assert "DELETE" in Silent.asked


def test_should_say_where_its_offset_is_not_in_the_log(broker: str) -> None:
    Silent.answers = {"PUT": told(0), "POST heartbeat": told(1), "DELETE": (200, {})}
    Silent.answers["GET offsets"] = 200, {"offsets": [{"topicUid": "u", "partition": 0, "offset": 99}]}
    problem = {"detail": "offset 99 is not there yet", "retriable": False, "logStartOffset": 3, "highWatermark": 12}
    Silent.answers["GET records"] = 416, problem
    with alone(broker) as program:
        assert program.wait(patient(60)) == 1
        assert "partition 0: offset 99 is not there yet" in program.communicate()[1]


def test_should_ask_again_where_offsets_cannot_be_had(broker: str) -> None:
    Silent.answers = {"PUT": told(0), "POST heartbeat": told(1), "DELETE": (200, {})}
    Silent.answers["GET offsets"] = 404, {"detail": "not just now", "retriable": False}
    with alone(broker) as program:
        wait_for(lambda: Silent.asked.count("GET offsets") > 1, "it asks again")
        assert "GET records" not in Silent.asked, "it would begin anew"
        program.send_signal(signal.SIGTERM)
        assert program.wait(patient(60)) == 0


def test_should_write_out_nothing_after_its_session(broker: str) -> None:
    """Its coordinator falls silent, while the records can be read."""
    Silent.answers = {"PUT": told(0, 2_000), "POST heartbeat": told(1, 2_000), "DELETE": (200, {})}
    Silent.answers["GET offsets"] = 200, {"offsets": []}
    records = [{"offset": 0, "value": "v"}]
    Silent.answers["GET records"] = 200, {"records": [], "nextOffset": 0, "logStartOffset": 0}
    with alone(broker) as program:
        wait_for(lambda: "GET records" in Silent.asked, "it reads")
        Silent.answers = {"GET records": (200, {"records": records, "nextOffset": 1, "logStartOffset": 0})}
        at = len(Silent.asked)
        wait_for(lambda: "PUT" in Silent.asked[at:], "it takes itself for removed, and joins again")
        program.send_signal(signal.SIGTERM)
        assert program.wait(patient(60)) == 0
        assert program.communicate()[0].count("\n") <= 1, "what it had asked for in time at most"
