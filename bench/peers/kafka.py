"""One Kafka node, broker and controller in one process, on loopback and in a temporary folder; gone at the end.

The JVM gets what Kafka's own start script gives it. The configuration is Kafka's default but for what one node needs;
its log goes to a file and tells warnings only, and the line that says that it has started.
"""

import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
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
_TIMEOUT_S = 60.0
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


class Kafka:
    """`server` is the process that runs now: another one after `restart`."""

    def __init__(self, folder: Path, classpath: str) -> None:
        self._folder = folder
        self._classpath = classpath
        port, controller_port = free_ports(2)
        self.address = f"127.0.0.1:{port}"
        self._settings = _server_settings(folder / "data", port, controller_port)
        self._log = folder / "kafka.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def server(self) -> Server:
        assert self._process is not None, "it was started"
        return Server(self._process.pid)

    def format(self) -> None:
        (self._folder / "server.properties").write_text(self._settings)
        identity = self._tool("random-uuid").strip().splitlines()[-1]
        self._tool("format", "-t", identity, "-c", str(self._folder / "server.properties"))

    def start(self) -> float:
        """Seconds until it said that it has started."""
        command = ["java", *BROKER_JVM, *_LOGGING, "-cp", self._classpath, "kafka.Kafka"]
        started = time.perf_counter()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, str(self._folder / "server.properties")], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        while _STARTED not in self._log.read_text(errors="replace"):
            if self._process.poll() is not None or time.perf_counter() - started > _TIMEOUT_S:
                raise PeersError(f"Kafka did not start:\n{self._log.read_text(errors='replace')[-2000:]}")
            time.sleep(_POLL_S)
        return time.perf_counter() - started

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
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def create_topics(self, topics: Mapping[str, Mapping[str, str]]) -> None:
        """Of one partition and one replica; each with settings of its own."""
        wanted = [NewTopic(name, 1, 1, config=dict(settings)) for name, settings in topics.items()]
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
def running_kafka(classpath: str) -> Iterator[Kafka]:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-kafka-") as name:
        kafka = Kafka(Path(name), classpath)
        try:
            kafka.format()
            kafka.start()
            yield kafka
        finally:
            kafka.stop()


def _server_settings(data: Path, port: int, controller_port: int) -> str:
    """Kafka's `config/server.properties` for one node; deleted topics give their space back at once."""
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(data),
        "log.segment.delete.delay.ms": "100",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "auto.create.topics.enable": "false",
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())
