"""An API server, an operator and one broker that a section starts and stops as it likes, gone at the end.

`dev_broker` is for whoever needs a broker that runs; this is for whoever measures how it starts.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

import yaml

_TIMEOUT_S = 120.0
_POLL_S = 0.005
_TOPICS = "/apis/headrace.io/v1alpha1/namespaces/default/topics"


class ReadyCosts(NamedTuple):
    """Processor seconds that processes took until they were ready, for those whose readiness somebody waited for."""

    api_s: float
    operator_s: float


class Cluster:
    """Everything on free ports of loopback; each process writes to a log file of its own in `folder`."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        """`environment` is that of all processes; None: this one's."""
        self._folder = folder
        self._environment = environment
        self._running: list[subprocess.Popen[bytes]] = []
        api, log = self._start("api", "headrace.dev.api", "--data", str(folder / "api"), "--port", "0")
        self._api: str = _wait(lambda: re.findall(r"^http://\S+", log.read_text(), re.MULTILINE), "the API")[0]
        self._api_ready_s = _processor_s(api.pid)
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(yaml.safe_dump(_kubeconfig(self._api)))
        self.broker_data = folder / "broker"
        self._operator, self._operator_log = self._start(
            "operator", "headrace_operator.main", "--kubeconfig", str(self.kubeconfig)
        )

    def ready_costs(self) -> ReadyCosts:
        """Wait for the operator; a cluster just made is meant."""
        _wait(lambda: "serving cluster" in self._operator_log.read_text(), "the operator")
        return ReadyCosts(self._api_ready_s, _processor_s(self._operator.pid))

    def create_topic(self, name: str, partitions: int) -> None:
        spec = {"partitions": partitions, "replicas": 1, "durability": "Replicated"}
        topic = {"apiVersion": "headrace.io/v1alpha1", "kind": "Topic", "metadata": {"name": name}, "spec": spec}
        self._call("POST", _TOPICS, topic)

    def wait_led(self, name: str) -> None:
        """Until every partition of the topic has a leader."""
        _wait(lambda: _is_served(self._call("GET", f"{_TOPICS}/{name}").get("status", {})), f"topic {name}")

    def start_broker(self) -> "Broker":
        started = time.perf_counter()
        data, kubeconfig = str(self.broker_data), str(self.kubeconfig)
        arguments = ("--id", "0", "--data", data, "--kubeconfig", kubeconfig, "--port", "0")
        process, log = self._start("broker", "headrace_broker.main", *arguments)
        port = int(_wait(lambda: re.findall(r"listens on port (\d+)", log.read_text()), "the broker's port")[0])
        _wait(lambda: _is_ready(port), "the broker")
        return Broker(process, log, port, time.perf_counter() - started, _processor_s(process.pid))

    def close(self) -> None:
        for process in reversed(self._running):
            if process.poll() is None:
                process.kill()
            process.wait()

    def _start(self, name: str, module: str, *arguments: str) -> tuple[subprocess.Popen[bytes], Path]:
        log = self._folder / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments], stdout=output, stderr=output, env=self._environment
            )
        self._running.append(process)
        return process, log

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._api + path, content, {"content-type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
            return json.loads(response.read())


class Broker:
    """One life of the broker."""

    def __init__(
        self, process: subprocess.Popen[bytes], log: Path, port: int, ready_s: float, ready_processor_s: float
    ) -> None:
        self._process = process
        self.log = log
        self.url = f"http://127.0.0.1:{port}"
        self.ready_s = ready_s
        """From the start of its process to the first 200 of /readyz."""
        self.ready_processor_s = ready_processor_s
        """The processor seconds that it had used by then."""

    @property
    def rss_bytes(self) -> int:
        pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def stop(self) -> None:
        """Cleanly, which takes as long as it takes."""
        self._process.send_signal(signal.SIGTERM)
        if self._process.wait(_TIMEOUT_S) != 0:
            raise RuntimeError(f"the broker ended with exit code {self._process.returncode}")


@contextmanager
def cluster(folder: Path, environment: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """Raises RuntimeError where a process does not come up."""
    made = Cluster(folder, environment)
    try:
        yield made
    finally:
        made.close()


def _processor_s(pid: int) -> float:
    """Return the processor seconds of a process and its ended children (proc(5), fields 14 to 17)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(ticks) for ticks in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def _kubeconfig(server: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bench",
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench", "namespace": "default"}}],
        "clusters": [{"name": "bench", "cluster": {"server": server}}],
        "users": [{"name": "bench", "user": {}}],
    }


def _is_served(status: dict[str, Any]) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", ()))


def _is_ready(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _wait(look: Any, what: str) -> Any:
    """The first answer that is true."""
    deadline = time.monotonic() + _TIMEOUT_S
    while not (answer := look()):
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what} is not there within {_TIMEOUT_S:g} s")
        time.sleep(_POLL_S)
    return answer
