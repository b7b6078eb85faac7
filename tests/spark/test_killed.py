"""S23: executors, brokers and drivers of a query are killed in turn, with speculative tasks: counts are exact.

HEADRACE_KILL_ROUNDS plays it for longer. That a driver dies between the sink's commit and the checkpoint's is played
step by step in `test_writing`.
"""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headrace import Producer
from tests.support.cluster import Cluster, Program, running_cluster
from tests.support.consumed import values_in
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
        for pid in [each for each in self._members() if _EXECUTOR not in _command(each)]:
            _kill(pid)
        self._process.wait(30)

    def executors(self) -> list[int]:
        return [each for each in self._members() if _EXECUTOR in _command(each) and b"java" in _command(each)]

    def end(self) -> None:
        for pid in self._members():
            _kill(pid)
        if self._process is not None:
            self._process.wait(30)

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


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running_cluster(tmp_path / "cluster", brokers=3) as cluster:
        for name in ("numbers", "copies"):
            cluster.create_topic(name, partitions=3, replicas=3)
        yield cluster


@pytest.mark.timeout(600 + 200 * _ROUNDS)
def test_should_copy_each_record_once_whoever_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    query, sent = Query(cluster, tmp_path), 0
    brokers = {broker: cluster.broker(broker) for broker in range(3)}

    def servers() -> str:
        return ",".join(cluster.url(broker) for broker in range(3))

    def send() -> None:
        nonlocal sent
        with Producer(servers()) as producer:
            for number in range(sent, sent + _MORE):
                producer.send("numbers", b"%d" % number, key=b"%d" % (number % 7))
        sent += _MORE

    def copied() -> int:
        return len(values_in(servers(), "copies"))

    def wait_copied(count: int) -> None:
        try:
            wait_for(lambda: copied() >= count, f"{count} records are copied", timeout_s=240)
        except AssertionError as error:
            error.add_note(query.log)
            raise

    def kill_executor() -> None:
        wait_for(lambda: query.executors(), "there is an executor", timeout_s=60)
        _kill(query.executors()[0])

    def kill_driver() -> None:
        query.kill()
        query.start()

    def kill_broker(turn: int) -> None:
        victim = turn % 3
        brokers[victim].kill()
        brokers[victim] = _again(cluster, victim, turn, brokers[victim])

    try:
        query.start()
        for turn in range(_ROUNDS):
            kills: list[Callable[[], None]] = [kill_executor, lambda turn=turn: kill_broker(turn), kill_driver]  # type: ignore[misc]
            for kill in kills:
                before = sent
                send()
                wait_copied(before + 1)  # in the middle of what was sent
                kill()
        wait_copied(sent)
    finally:
        query.end()
    found = Counter(map(int, values_in(servers(), "copies")))
    assert {number: times for number, times in found.items() if times != 1} == {}
    assert sorted(found) == list(range(sent))


def _again(cluster: Cluster, broker: int, turn: int, before: Program) -> Program:
    """On the port that it had: the query knows the addresses that it was started with."""
    port = cluster.url(broker).rsplit(":", 1)[1]
    assert not before.is_running
    return cluster.start_broker(broker, "--port", port, name=f"broker-{broker}-again-{turn}")
