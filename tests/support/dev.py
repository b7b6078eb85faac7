"""`headrace dev` as a user runs it: the real command, in a home and on ports of its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from headrace.dev.supervisor.layout import lock_file
from headrace.dev.supervisor.state import lock_holder
from tests.support.patience import patient
from tests.support.tools import kubectl_path

_COMMAND_TIMEOUT_S = patient(90)


@dataclass(frozen=True, slots=True)
class Answer:
    exit_code: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Dev:
    """One home; whether something runs in it is up to the test."""

    home: Path

    def headrace(self, *arguments: str) -> Answer:
        environment = {**os.environ, "HEADRACE_HOME": str(self.home)}
        result = subprocess.run(
            [str(Path(sys.executable).with_name("headrace")), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
        )
        return Answer(result.returncode, result.stdout, result.stderr)

    def kubectl(self, *arguments: str) -> str:
        """What kubectl printed."""
        command = [kubectl_path(), "--kubeconfig", self.status()["kubeconfig"], *arguments]
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout

    def start(self, *arguments: str) -> str:
        """`headrace dev --detach --port 0`: what it printed. Fails when it fails."""
        answer = self.headrace("dev", "--detach", "--port", "0", *arguments)
        assert answer.exit_code == 0, answer.stderr
        return answer.stdout

    def stop(self) -> None:
        answer = self.headrace("dev", "stop")
        assert answer.exit_code == 0, answer.stderr

    def status(self) -> dict[str, Any]:
        """The state file: what `headrace dev status -o json` prints, without starting a process to read it."""
        state: dict[str, Any] = json.loads((self.home / "dev.json").read_text())
        return state

    @property
    def supervisor(self) -> int:
        pid = lock_holder(lock_file(self.home))
        assert pid is not None, "headrace dev is not running"
        return pid

    @property
    def successor(self) -> int:
        """The process that takes over when the supervisor is killed."""
        return self._child_of_supervisor(b"successor.py")

    @property
    def fork_server(self) -> int:
        return self._child_of_supervisor(b"headrace.dev.supervisor.fork_server")

    def _child_of_supervisor(self, part_of_command: bytes) -> int:
        supervisor = self.supervisor
        for pid in Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split():
            if part_of_command in command_of(int(pid)):
                return int(pid)
        raise LookupError(f"the supervisor has no child {part_of_command!r}")

    def broker_pids(self) -> dict[int, int | None]:
        return {broker["id"]: broker["pid"] for broker in self.status()["brokers"]}

    def all_pids(self) -> list[int]:
        """The pids of every process but the successor and the fork server, the supervisor first."""
        state = self.status()
        children = [state["api"]["pid"], state["operator"]["pid"], *self.broker_pids().values()]
        return [self.supervisor, *(pid for pid in children if pid is not None)]

    def log(self, name: str = "dev") -> str:
        return (self.home / "dev" / "logs" / f"{name}.log").read_text()

    def start_with_topic(
        self,
        name: str,
        *arguments: str,
        partitions: int = 1,
        brokers: int = 1,
        replicas: int = 1,
        min_insync_replicas: int | None = None,
    ) -> str:
        """Start, and bring about a topic; see `start`."""
        manifest = self.home / f"{name}.yaml"
        self.home.mkdir(parents=True, exist_ok=True)
        topic = topic_manifest(name, partitions, replicas)
        if min_insync_replicas is not None:
            topic["spec"]["minInsyncReplicas"] = min_insync_replicas
        manifest.write_text(yaml.safe_dump(topic))
        return self.start("--brokers", str(brokers), "-f", str(manifest), *arguments)


def topic_manifest(name: str, partitions: int = 1, replicas: int = 1) -> dict[str, Any]:
    """Of a topic that keeps what tests write, of whatever time."""
    return {
        "apiVersion": "headrace.io/v1alpha1",
        "kind": "Topic",
        "metadata": {"name": name},
        "spec": {"partitions": partitions, "replicas": replicas, "retention": {"time": "unlimited"}},
    }


@contextmanager
def dev_home(home: Path) -> Iterator[Dev]:
    """Stops at the end whatever the test left running."""
    dev = Dev(home)
    try:
        yield dev
    finally:
        dev.headrace("dev", "stop")


def kill(*pids: int) -> None:
    """kill -9, all of them as good as at once; brokers that die with their supervisor may be faster."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def command_of(pid: int) -> bytes:
    """Its command line; nothing where it has ended since it was listed."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def is_alive(pid: int) -> bool:
    """A zombie whose parent has not looked yet is dead."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
