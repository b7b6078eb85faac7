"""S23: executors, brokers and drivers of a query are killed in turn, with speculative tasks: counts are exact.

HEADRACE_KILL_ROUNDS plays it for longer. That a driver dies between the sink's commit and the checkpoint's is played
step by step in `test_writing`.
"""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headrace import Producer
from tests.support.cluster import Cluster, Program, running_cluster
from tests.support.consumed import values_in
from tests.support.dev import command_of
from tests.support.patience import patient
from tests.support.waiting import wait_for

_ROUNDS = int(os.environ.get("HEADRACE_KILL_ROUNDS", "1"))
_MORE = 1_500
"""Records between two kills: some batches of the query."""
_EXECUTOR = b"CoarseGrainedExecutorBackend"


@dataclass
class Query:
    """A driver with its executors, in a session of processes of its own."""

    cluster: Cluster
    folder: Path
    lives: int = 0
    _process: "subprocess.Popen[bytes] | None" = None
    _sessions: set[int] = field(default_factory=set)

    def start(self) -> None:
        self.lives += 1
        servers = ",".join(self.cluster.url(broker) for broker in range(3))
        command = [sys.executable, "-m", "tests.support.copying_query", servers, "numbers", "copies"]
        with (self.folder / f"driver-{self.lives}.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*command, str(self.folder / "checkpoint")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._sessions.add(self._process.pid)

    def kill(self) -> None:
        """The driver with its JVM; its executors end by themselves."""
        assert self._process is not None
        for pid in [each for each in self._members() if _EXECUTOR not in command_of(each)]:
            _kill(pid)
        self._process.wait(patient(30))

    def executors(self) -> list[int]:
        return [each for each in self._members() if _EXECUTOR in command_of(each) and b"java" in command_of(each)]

    def end(self) -> None:
        for pid in self._members():
            _kill(pid)
        if self._process is not None:
            self._process.wait(patient(30))

    @property
    def log(self) -> str:
        return (self.folder / f"driver-{self.lives}.log").read_text(errors="replace")[-3_000:]

    def _members(self) -> list[int]:
        """Of all sessions that this test began."""
        found = []
        for name in os.listdir("/proc"):
            with suppress(ProcessLookupError, PermissionError):
                if name.isdecimal() and os.getsid(int(name)) in self._sessions:
                    found.append(int(name))
        return found


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@dataclass
class Run:
    """One query that copies, what it was given, and whoever is killed meanwhile."""

    cluster: Cluster
    query: Query
    sent: int = 0
    lives: dict[int, Program] = field(default_factory=dict)

    @property
    def servers(self) -> str:
        return ",".join(self.cluster.url(broker) for broker in range(3))

    def send(self) -> None:
        with Producer(self.servers) as producer:
            for number in range(self.sent, self.sent + _MORE):
                producer.send("numbers", b"%d" % number, key=b"%d" % (number % 7))
        self.sent += _MORE

    def wait_copied(self, count: int) -> None:
        def are_copied() -> bool:
            return len(values_in(self.servers, "copies")) >= count

        try:
            wait_for(are_copied, f"{count} records are copied", timeout_s=240)
        except AssertionError as error:
            error.add_note(self.query.log)
            raise

    def kill_executor(self, _: int) -> None:
        wait_for(self.query.executors, "there is an executor", timeout_s=60)
        _kill(self.query.executors()[0])

    def kill_broker(self, turn: int) -> None:
        """It comes back on the port that it had: the query knows the addresses that it was started with."""
        victim = turn % 3
        port = self.cluster.url(victim).rsplit(":", 1)[1]
        self.lives.get(victim, self.cluster.broker(victim)).kill()
        name = f"broker-{victim}-again-{turn}"
        self.lives[victim] = self.cluster.start_broker(victim, "--port", port, name=name)

    def kill_driver(self, _: int) -> None:
        self.query.kill()
        self.query.start()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with running_cluster(tmp_path / "cluster", brokers=3) as cluster:
        for name in ("numbers", "copies"):
            cluster.create_topic(name, partitions=3, replicas=3)
        query = Query(cluster, tmp_path)
        query.start()
        try:
            yield Run(cluster, query)
        finally:
            query.end()


@pytest.mark.timeout(600 + 200 * _ROUNDS)
def test_should_copy_each_record_once_whoever_is_killed(run: Run) -> None:
    for turn in range(_ROUNDS):
        for kill in (run.kill_executor, run.kill_broker, run.kill_driver):
            before = run.sent
            run.send()
            run.wait_copied(before + 1)  # in the middle of what was sent
            kill(turn)
    run.wait_copied(run.sent)
    run.query.end()
    found = Counter(map(int, values_in(run.servers, "copies")))
    assert {number: times for number, times in found.items() if times != 1} == {}
    assert sorted(found) == list(range(run.sent))
