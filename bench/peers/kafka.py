"""Kafka nodes, each broker and controller in one process, on loopback and in a temporary folder; gone at the end.

The JVM gets what Kafka's own start script gives it. The configuration is Kafka's default but for what one node needs;
its log goes to a file and tells warnings only, and the line that says that it has started.
"""

import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.peers.errors import PeersError
from bench.peers.ports import free_ports
from bench.peers.processes import Server

# kafka-server-start.sh and kafka-run-class.sh of Kafka 4.1.
BROKER_JVM = (
    *("-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"),
)
_LOGGING = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
)
_STARTED = "Kafka Server started"
_TIMEOUT_S = 120.0
_POLL_S = 0.005
# A client that asks for the server all the time: it is the server's start that counts.
_IMPATIENT = {
    "reconnect.backoff.ms": 5,
    "reconnect.backoff.max.ms": 10,
    "retry.backoff.ms": 5,
    "topic.metadata.refresh.fast.interval.ms": 10,
    "linger.ms": 0,
    "log_level": 0,
}


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds from the start of a process."""

    ready_s: float
    """Until it said that it is."""
    acknowledged_s: float
    """Until a record was acknowledged, by a client that had tried all the time."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Of one node."""

    node: int
    folder: Path
    port: int
    controller_port: int


class Kafka:
    """`servers` are the processes that run now: others after `restart`."""

    def __init__(self, folder: Path, classpath: str, nodes: int = 1) -> None:
        self._classpath = classpath
        ports = free_ports(2 * nodes)
        self._places = [
            _Place(node, folder / f"node-{node}", *ports[2 * node - 2 : 2 * node]) for node in range(1, nodes + 1)
        ]
        self.address = ",".join(f"127.0.0.1:{place.port}" for place in self._places)
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def servers(self) -> list[Server]:
        return [Server(process.pid) for process in self._processes]

    def format(self) -> None:
        identity = self._tool("random-uuid").strip().splitlines()[-1]
        for place in self._places:
            place.folder.mkdir()
            _properties(place).write_text(_server_settings(place, self._places))
            self._tool("format", "-t", identity, "-c", str(_properties(place)))

    def start(self) -> float:
        """Seconds until all of them said that they have started."""
        started = time.perf_counter()
        self._processes = [self._start(place) for place in self._places]
        for place, process in zip(self._places, self._processes, strict=True):
            while _STARTED not in (said := _log(place).read_text(errors="replace")):
                if process.poll() is not None or time.perf_counter() - started > _TIMEOUT_S:
                    raise PeersError(f"Kafka did not start:\n{said[-2000:]}")
                time.sleep(_POLL_S)
        return time.perf_counter() - started

    def _start(self, place: _Place) -> subprocess.Popen[bytes]:
        command = ["java", *BROKER_JVM, *_LOGGING, "-cp", self._classpath, "kafka.Kafka", str(_properties(place))]
        with _log(place).open("wb") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def restart(self, topic: str) -> Start:
        """After a clean stop, with a topic that is there already."""
        self.stop()
        started = time.perf_counter()
        producer = Producer({"bootstrap.servers": self.address, **_IMPATIENT})
        producer.produce(topic, b"first")
        ready = self.start()
        if producer.flush(_TIMEOUT_S):
            raise PeersError(f"Kafka took no record within {_TIMEOUT_S:g} s of its start")
        return Start(ready, time.perf_counter() - started)

    def stop(self) -> None:
        running = [process for process in self._processes if process.poll() is None]
        for process in running:
            process.terminate()
        for process in running:
            try:
                process.wait(_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def create_topics(self, topics: Mapping[str, Mapping[str, str]], partitions: int | None = None) -> None:
        """With a partition, or so many, and a replica for each node; each topic with settings of its own."""
        count = len(self._places)
        wanted = [
            NewTopic(name, partitions or count, count, config=dict(settings)) for name, settings in topics.items()
        ]
        admin = self._admin()  # Its answers come as long as it is held.
        for created in admin.create_topics(wanted).values():
            created.result(_TIMEOUT_S)

    def delete_topics(self, topics: list[str]) -> None:
        admin = self._admin()
        for deleted in admin.delete_topics(topics).values():
            deleted.result(_TIMEOUT_S)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.address})

    def _tool(self, *arguments: str) -> str:
        command = ["java", *_LOGGING, "-cp", self._classpath, "kafka.tools.StorageTool", *arguments]
        result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise PeersError(f"Kafka's storage tool failed:\n{(result.stdout + result.stderr)[-2000:]}")
        return result.stdout


@contextmanager
def running_kafka(classpath: str, nodes: int = 1) -> Iterator[Kafka]:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-kafka-") as name:
        kafka = Kafka(Path(name), classpath, nodes)
        try:
            kafka.format()
            kafka.start()
            yield kafka
        finally:
            kafka.stop()


def _properties(place: _Place) -> Path:
    return place.folder / "server.properties"


def _log(place: _Place) -> Path:
    return place.folder / "kafka.log"


def _server_settings(place: _Place, places: Sequence[_Place]) -> str:
    """Kafka's `config/server.properties` for one node; deleted topics give their space back at once."""
    settings = {
        "process.roles": "broker,controller",
        "node.id": str(place.node),
        "controller.quorum.voters": ",".join(f"{each.node}@127.0.0.1:{each.controller_port}" for each in places),
        "listeners": f"PLAINTEXT://127.0.0.1:{place.port},CONTROLLER://127.0.0.1:{place.controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{place.port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(place.folder / "data"),
        "log.segment.delete.delay.ms": "100",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "auto.create.topics.enable": "false",
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())
