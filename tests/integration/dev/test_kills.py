"""`headrace dev` under load, killed piece by piece: every process of it comes back, clients lose and double nothing.

One producer (idempotent, as by default) and one consumer go on all the time. Each victim is killed with -9 while both
are being served, and the next one only when the producer is served again.
"""

import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headrace import Consumer, Producer
from tests.support.dev import Dev, dev_home, kill
from tests.support.history import Entry, check
from tests.support.patience import patient
from tests.support.tools import kubectl_path
from tests.support.waiting import wait_for

TOPIC = "ledger"
BROKERS = 3
SERVED_WITHIN_S = 60.0
"""By a machine that does other things too; what it takes is measured by `make bench`."""
RECORDS_AFTER_A_KILL = 20
DELIVERY_TIMEOUT_MS = round(patient(60) * 1000)
PACE_S = 0.005
LEADERS_BY_BROKER = re.compile(r"\d+:\d+(?: \d+:\d+)*")
WHOLE = "0:1 1:1 2:1"
"""As it is shown while each broker leads one of three partitions."""


def _broker(number: int) -> Callable[[Dev], int | None]:
    return lambda dev: dev.broker_pids()[number]


VICTIMS: dict[str, Callable[[Dev], int | None]] = {
    "operator": lambda dev: dev.status()["operator"]["pid"],
    **{f"broker {number}": _broker(number) for number in range(BROKERS)},
    "the API": lambda dev: dev.status()["api"]["pid"],
    "fork server": lambda dev: dev.fork_server,
    "successor": lambda dev: dev.successor,
    "supervisor": lambda dev: dev.supervisor,
}


@dataclass(slots=True)
class Load:
    """A producer and a consumer on threads of their own."""

    server: str
    consumer: Consumer
    sent: list[tuple[bytes, Future[Any]]] = field(default_factory=list)
    read: list[Entry] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    @property
    def acknowledged(self) -> int:
        return sum(1 for _, sending in self.sent if sending.done())

    def produce(self) -> None:
        with Producer(server=self.server, delivery_timeout_ms=DELIVERY_TIMEOUT_MS) as producer:
            while not self.stopped.wait(PACE_S):
                value = b"%d" % len(self.sent)
                self.sent.append((value, producer.send(TOPIC, value, key=value)))

    def consume(self) -> None:
        """Until the consumer is woken up."""
        for record in self.consumer:
            self.read.append(Entry(record.partition, record.offset, record.value or b""))

    def results(self) -> list[Entry]:
        """Of every record that was sent: a failure of any of them is raised."""
        written = [(value, sending.result(DELIVERY_TIMEOUT_MS / 1000)) for value, sending in self.sent]
        return [Entry(each.partition, each.offset, value) for value, each in written]


@contextmanager
def loaded(server: str) -> Iterator[Load]:
    """A load that is stopped at the end, when all that was sent is read."""
    with Consumer(TOPIC, server=server) as consumer:
        load = Load(server, consumer)
        producing, consuming = (threading.Thread(target=each, daemon=True) for each in (load.produce, load.consume))
        producing.start()
        consuming.start()
        try:
            yield load
            load.stopped.set()
            wait_for(lambda: not producing.is_alive() and len(load.read) >= len(load.sent), "all that was sent is read")
        finally:
            load.stopped.set()
            consumer.wakeup()
            for thread in (producing, consuming):
                thread.join(DELIVERY_TIMEOUT_MS / 1000)


@pytest.mark.timeout(200)
def test_should_survive_the_kill_of_each_of_its_processes_again_and_again(tmp_path: Path) -> None:
    stalls: dict[str, float] = {}
    with dev_home(tmp_path / "home") as dev:
        dev.start_with_topic(TOPIC, partitions=3, brokers=BROKERS, replicas=BROKERS)
        leaders = tmp_path / "leaders.txt"
        with kubectl_watch(dev, leaders), loaded(dev.status()["brokers"][0]["url"]) as load:
            wait_for(lambda: load.acknowledged >= RECORDS_AFTER_A_KILL, "first acknowledgements")
            wait_for(lambda: WHOLE in leaders.read_text(), "each broker leads")
            stalls["broker 0"] = strike(dev, load, "broker 0")
            wait_for(lambda: any("0:" not in seen for seen in leaders_in(leaders)), "kubectl shows others that lead")
            for name in (*VICTIMS, "supervisor", "operator"):
                stalls[name] = max(stalls.get(name, 0.0), strike(dev, load, name))
        acknowledged = load.results()
        final = read_all(load.server)
    assert check(acknowledged, final, load.read) == []
    assert sorted(load.read) == sorted(final) == sorted(acknowledged), f"skipped or doubled; stalls were {stalls}"


def leaders_in(output: Path) -> list[str]:
    return LEADERS_BY_BROKER.findall(output.read_text())


@contextmanager
def kubectl_watch(dev: Dev, output: Path) -> Iterator[None]:
    """`kubectl get topics -w`, as people watch leaders move; it ends with the API server at the latest."""
    command = [kubectl_path(), "--kubeconfig", dev.status()["kubeconfig"], "get", "topics", "-o", "wide", "-w"]
    with output.open("wb") as lines, subprocess.Popen(command, stdout=lines, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()


def strike(dev: Dev, load: Load, name: str) -> float:
    """Seconds until the producer is served again, and the process is another one."""
    pid = wait_for(lambda: quietly(VICTIMS[name], dev), f"{name} is there", SERVED_WITHIN_S)
    sent, started = len(load.sent), time.monotonic()
    kill(pid)
    served = sent + RECORDS_AFTER_A_KILL
    wait_for(lambda: load.acknowledged >= served, f"service after the kill of {name}", SERVED_WITHIN_S)
    stall = time.monotonic() - started
    wait_for(lambda: quietly(VICTIMS[name], dev) not in (None, pid), f"another {name}", SERVED_WITHIN_S)
    return stall


def quietly(look: Callable[[Dev], int | None], dev: Dev) -> int | None:
    """None while there is nothing to look at."""
    try:
        return look(dev)
    except (OSError, AssertionError, LookupError, ValueError):
        return None


def read_all(server: str) -> list[Entry]:
    with Consumer(TOPIC, server=server) as consumer:
        return [Entry(r.partition, r.offset, r.value or b"") for r in consumer.records(follow=False)]
