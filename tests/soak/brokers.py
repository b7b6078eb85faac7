"""The cluster under a soak: three brokers on ports that stay, killed one by one, and what each of them takes.

Broker STEADY is never killed: over its life memory and open files must be flat. The others are killed with SIGKILL at
random and started again at once.
"""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from headrace.dev.supervisor.layout import free_port_run
from tests.soak.journal import STEADY, Sample
from tests.soak.member import Place
from tests.support.cluster import Cluster, Program, http, running_cluster

BROKERS: Final = 3
_OPTIONS: Final = ("--housekeeping-interval", "1s")
_LOG_TAIL: Final = 1000
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class Brokers:
    cluster: Cluster
    first_port: int
    kills: int = 0
    _numbers: dict[str, int] = field(default_factory=dict)

    @property
    def server(self) -> str:
        """Of the one that is always there."""
        return f"http://127.0.0.1:{self.first_port + STEADY}"

    def start(self, broker: int) -> Program:
        port = str(self.first_port + broker)
        return self.cluster.start_broker(broker, *_OPTIONS, "--port", port, ready=False)

    def kill_one(self, choose: random.Random) -> int:
        """Any but the steady one; which it was. It starts again, and is waited for by nobody."""
        broker = choose.choice([each for each in range(BROKERS) if each != STEADY])
        self.cluster.broker(broker).kill()
        self.start(broker)
        self.kills += 1
        return broker

    def wait_ready(self) -> None:
        for broker in range(BROKERS):
            self.cluster.wait_ready(self.cluster.broker(broker))

    def create_topic(self, name: str, partitions: int, **spec: Any) -> list[Place]:
        """Its partitions, numbered on from those of the topics before."""
        self.cluster.create_topic(name, partitions=partitions, **spec)
        first = sum(self._numbers.values())
        self._numbers[name] = partitions
        return [
            Place(name, first + partition, self.cluster.records_url(name, partition)) for partition in range(partitions)
        ]

    def sample(self, at_s: float) -> list[Sample]:
        """Of those that live just now."""
        programs = [self.cluster.broker(broker) for broker in range(BROKERS)]
        seen = [_sample(at_s, broker, program.pid) for broker, program in enumerate(programs)]
        return [sample for sample in seen if sample is not None]

    def ended(self) -> list[str]:
        """Brokers that nobody has killed and that run no more; each starts again."""
        found = [broker for broker in range(BROKERS) if not self.cluster.broker(broker).is_running]
        said = [f"broker {broker}: {self.cluster.broker(broker).log[-_LOG_TAIL:]}" for broker in found]
        for broker in found:
            self.start(broker)
        return said

    def data_bytes(self) -> int:
        """Of all logs of all brokers."""
        return sum(_size(path) for path in self.cluster.home.glob("broker-*/partitions/*/*"))

    def deleted_files(self) -> list[str]:
        """That brokers hold open, though they are gone."""
        return [target for target in self._open_files() if target.endswith(" (deleted)")]

    def sockets(self) -> list[str]:
        """Of all brokers."""
        return [target for target in self._open_files() if target.startswith("socket:")]

    def _open_files(self) -> Iterator[str]:
        for broker in range(BROKERS):
            yield from _targets(self.cluster.broker(broker).pid)

    def metric(self, broker: int, name: str) -> float:
        """The sum of a metric's series."""
        lines = http("GET", f"http://127.0.0.1:{self.first_port + broker}/metrics").body.decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))


@contextmanager
def running_brokers(home: Path) -> Iterator[Brokers]:
    with running_cluster(home, brokers=0) as cluster:
        brokers = Brokers(cluster, free_port_run(BROKERS, random.Random()))
        for broker in range(BROKERS):
            brokers.start(broker)
        brokers.wait_ready()
        yield brokers


def _sample(at_s: float, broker: int, pid: int) -> Sample | None:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return Sample(at_s, broker, pid, pages * _PAGE_BYTES, len(os.listdir(f"/proc/{pid}/fd")))
    except (OSError, IndexError):
        return None


def _targets(pid: int) -> Iterator[str]:
    """Yield what the descriptors of the process lead to; nothing where it has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                yield os.readlink(descriptor)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
