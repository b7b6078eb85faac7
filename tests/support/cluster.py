"""A Headrace of real processes for tests: the embedded API, the operator, brokers, all on free ports of loopback.

Processes are started, stopped and killed one by one, by their pid; whatever still runs at the end is killed. Each
writes its log to `<home>/<name>.log`, which a failed wait shows the end of.
"""

import json
import signal
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from headrace.core.resources.metadata import API_VERSION
from tests.support.patience import patient
from tests.support.started import Process, module, start
from tests.support.waiting import wait_for
from tests.support.world import JSON_BODY, LEASES, NDJSON_BODY, PARTITION_SETS, TOPICS

_LOG_TAIL = 3000


@dataclass(slots=True)
class Program:
    """One process, and where its output goes."""

    name: str
    process: Process
    log_file: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self.process.kill()
        self.process.wait(patient(30))

    def stop(self, timeout_s: float = 30) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait(timeout_s)

    def wait(self, timeout_s: float = 30) -> int:
        """The exit code, once it ends by itself."""
        try:
            return self.process.wait(patient(timeout_s))
        except subprocess.TimeoutExpired:
            said = self.log[-_LOG_TAIL:]
            raise AssertionError(f"{self.name} still runs after {patient(timeout_s):g} s:\n{said}") from None


@dataclass(slots=True)
class Answer:
    """Of one HTTP request; headers by lower-case name."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(slots=True)
class Cluster:
    home: Path
    programs: dict[str, Program] = field(default_factory=dict)
    api_url: str = ""
    tls: ssl.SSLContext | None = None
    """Trusts the brokers that speak TLS."""
    broker_prefix: tuple[str, ...] = ()
    """What brokers are started by, as `nsenter` with its options."""

    @property
    def kubeconfig(self) -> Path:
        return self.home / "kubeconfig"

    def start(self, brokers: int = 1, *options: str) -> None:
        """The API, the operator and so many brokers with these options, ready."""
        self.start_api()
        self.start_operator()
        self.start_brokers(range(brokers), *options)

    @property
    def is_running(self) -> bool:
        return any(program.is_running for program in self.programs.values())

    def start_api(self) -> Program:
        """Its data stays in `home`: a second start goes on where the first ended, on the same port."""
        port = self.api_url.rpartition(":")[2] or "0"
        api = self._start("api", "headrace.dev.api", "--data", str(self.home / "api"), "--port", port)
        self.api_url = self._wait(api, lambda: next((x for x in api.log.splitlines() if x.startswith("http://")), None))
        self._write_kubeconfig()
        return api

    def start_operator(self, *options: str, name: str = "operator") -> Program:
        return self._start(name, "headrace_operator.main", "--kubeconfig", str(self.kubeconfig), *options)

    def start_broker(self, broker: int = 0, *options: str, name: str = "", ready: bool = True) -> Program:
        """Waits until it is ready, unless told not to. Data is in `home/broker-<id>` unless `options` say otherwise."""
        data = self.home / f"broker-{broker}"
        program = self._start(
            name or f"broker-{broker}",
            "headrace_broker.main",
            *("--id", str(broker), "--data", str(data), "--kubeconfig", str(self.kubeconfig), "--port", "0"),
            *options,
            prefix=self.broker_prefix,
        )
        if ready:
            self.wait_ready(program)
        return program

    def start_brokers(self, brokers: Iterable[int], *options: str) -> None:
        """All at once, ready: what takes time is the loading of their modules."""
        for program in [self.start_broker(broker, *options, ready=False) for broker in brokers]:
            self.wait_ready(program)

    def wait_ready(self, broker: Program) -> None:
        self._wait(broker, lambda: " is ready" in broker.log)

    def broker(self, broker: int = 0) -> Program:
        return self.programs[f"broker-{broker}"]

    def url(self, broker: int = 0) -> str:
        """Where the broker's last life listens, by its Lease."""
        lease = self.kube("GET", f"{LEASES}/headrace-broker-{broker}")
        url: str = lease["metadata"]["annotations"]["headrace.io/url"]
        return url

    def wait_lease(self, broker: int = 0) -> None:
        """Until the broker has shown itself in the API."""
        name = f"headrace-broker-{broker}"
        wait_for(
            lambda: any(lease["metadata"]["name"] == name for lease in self.kube("GET", LEASES)["items"]),
            f"{name} is there",
        )

    def peer_key(self, broker: int = 0) -> str:
        """What shows other brokers that this one sends a request."""
        lease = self.kube("GET", f"{LEASES}/headrace-broker-{broker}")
        return str(lease["metadata"]["annotations"]["headrace.io/peer-key"])

    def create_topic(
        self,
        name: str = "flights",
        *,
        partitions: int = 1,
        wait: bool = True,
        labels: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> str:
        """A Topic of one replica that keeps what tests write, of whatever time; its uid.

        Waits until every partition is led by a broker that knows it.
        """
        manifest = {
            "apiVersion": API_VERSION,
            "kind": "Topic",
            "metadata": {"name": name, "labels": {**(labels or {})}},
            "spec": {"partitions": partitions, "replicas": 1, "retention": {"time": "unlimited"}, **spec},
        }
        uid: str = self.kube("POST", TOPICS, manifest)["metadata"]["uid"]
        if wait:
            self.wait_led(name, partitions)
        return uid

    def wait_led(self, name: str = "flights", partitions: int = 1) -> None:
        """Until each partition's leader serves it."""

        def is_led() -> bool:
            answer = http("GET", f"{self.url()}/v1/namespaces/default/topics/{name}", tls=self.tls)
            if answer.status != 200 or len(answer.json["partitions"]) != partitions:
                return False
            return all(
                each["leader"] and self.serves(each["leader"]["url"], name, each["partition"])
                for each in answer.json["partitions"]
            )

        wait_for(lambda: self._quietly(is_led), f"every partition of {name} is led")

    def leader_url(self, topic: str = "flights", partition: int = 0) -> str:
        """Of the broker that leads the partition."""
        answer = http("GET", f"{self.url()}/v1/namespaces/default/topics/{topic}", tls=self.tls)
        url: str = answer.json["partitions"][partition]["leader"]["url"]
        return url

    def records_url(self, topic: str = "flights", partition: int = 0) -> str:
        """The partition's records at its leader."""
        return (
            f"{self.leader_url(topic, partition)}/v1/namespaces/default/topics/{topic}/partitions/{partition}/records"
        )

    def serves(self, url: str, topic: str, partition: int) -> bool:
        path = f"/v1/namespaces/default/topics/{topic}/partitions/{partition}/offsets"
        answer = http("GET", url + path, tls=self.tls)
        return answer.status == 200

    def produce(self, count: int, topic: str = "flights", partition: int = 0) -> None:
        """So many records, in one batch."""
        body = json.dumps({"records": [{"value": number} for number in range(count)]}).encode()
        answer = http("POST", self.records_url(topic, partition), body, JSON_BODY)
        assert answer.status == 200, answer.body

    def delete_topic(self, name: str = "flights") -> None:
        self.kube("DELETE", f"{TOPICS}/{name}")

    def partition_set(self, name: str = "flights-0") -> dict[str, Any]:
        return self.kube("GET", f"{PARTITION_SETS}/{name}")

    def kube(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """One request to the embedded API; fails on any error. PATCH merges."""
        content = json.dumps(body).encode() if body is not None else b""
        media_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
        answer = http(method, self.api_url + path, content, {"Content-Type": media_type})
        assert answer.status < 300, f"{method} {path}: HTTP {answer.status} {answer.body.decode()}"
        parsed: dict[str, Any] = answer.json
        return parsed

    def close(self) -> None:
        for program in self.programs.values():
            if program.is_running:
                program.kill()

    def _start(self, name: str, module_name: str, *options: str, prefix: Sequence[str] = ()) -> Program:
        running = self.programs.get(name)
        assert running is None or not running.is_running, f"{name} runs already"
        log_file = self.home / f"{name}.log"
        with log_file.open("wb") as log:
            process = start([*prefix, *module(module_name, *options)], log.fileno())
        program = self.programs[name] = Program(name, process, log_file)
        return program

    def _wait(self, program: Program, condition: Any) -> Any:
        def check() -> Any:
            assert program.is_running, f"{program.name} ended by itself:\n{program.log[-_LOG_TAIL:]}"
            return condition()

        return wait_for(check, f"{program.name} is up")

    def _quietly(self, condition: Any) -> bool:
        try:
            return bool(condition())
        except OSError:
            return False

    def _write_kubeconfig(self) -> None:
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": "default"}}],
            "clusters": [{"name": "test", "cluster": {"server": self.api_url}}],
            "users": [{"name": "test", "user": {}}],
        }
        self.kubeconfig.write_text(yaml.safe_dump(document))


@contextmanager
def running_cluster(
    home: Path, *, brokers: int = 1, options: Sequence[str] = (), tls: ssl.SSLContext | None = None
) -> Iterator[Cluster]:
    """The API, the operator and so many brokers with these options, ready."""
    home.mkdir(parents=True, exist_ok=True)
    cluster = Cluster(home, tls=tls)
    try:
        cluster.start(brokers, *options)
        yield cluster
    finally:
        cluster.close()


def produce(url: str, *values: str, timestamp_ms: int | None = None) -> None:
    """Write a record of each value to the partition whose records are at `url`."""
    time = {} if timestamp_ms is None else {"timestamp": timestamp_ms}
    body = "".join(json.dumps({"value": value, **time}) + "\n" for value in values)
    answer = http("POST", url, body.encode(), NDJSON_BODY)
    assert answer.status == 200, answer.body


def http(
    method: str,
    url: str,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    *,
    tls: ssl.SSLContext | None = None,
) -> Answer:
    """One HTTP/1.1 request. Raises OSError where nobody answers; any status is an answer."""
    request = urllib.request.Request(url, data=body or None, headers=dict(headers or {}), method=method)
    try:
        with urllib.request.urlopen(request, timeout=patient(60), context=tls) as response:
            return Answer(response.status, _lower(response.headers), response.read())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, _lower(error.headers), error.read())


def _lower(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
