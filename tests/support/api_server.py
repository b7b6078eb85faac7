"""An API server for tests: the embedded one as a process of its own, a namespace in any one, and kubectl.

`Space` is where a contract test works; `Kubectl` is an unmodified kubectl, run as a user runs it.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.kubeconfig import ApiClient
from tests.support.patience import patient
from tests.support.started import Process, module, start

STOP_TIMEOUT_S = patient(60)
_STDERR = 2


@dataclass(frozen=True, slots=True)
class EmbeddedApi:
    url: str
    process: Process

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@contextmanager
def embedded_api(data: Path, *arguments: str) -> Iterator[EmbeddedApi]:
    """Run it on a free port until the block ends; it must then stop cleanly, unless it was killed."""
    reading, writing = os.pipe()
    with os.fdopen(reading) as said:
        try:
            process = start(_command(data, "--port", "0", *arguments), writing, _STDERR)
        finally:
            os.close(writing)
        try:
            url = said.readline().strip()
            assert url.startswith("http://"), f"the API did not start: {url!r}, exit code {process.poll()}"
            yield EmbeddedApi(url, process)
        finally:
            process.send_signal(signal.SIGTERM)
            exit_code = process.wait(STOP_TIMEOUT_S)
        assert exit_code in (0, -signal.SIGKILL), f"the API ended with {exit_code}"


def complaint(data: Path, *arguments: str) -> tuple[int, str]:
    """The exit code of one that cannot start, and what it says."""
    done = subprocess.run(
        _command(data, *arguments), capture_output=True, text=True, timeout=STOP_TIMEOUT_S, check=False
    )
    return done.returncode, done.stderr


def _command(data: Path, *arguments: str) -> list[str]:
    return module("headrace.dev.api", "--data", str(data), *arguments)


@dataclass(frozen=True, slots=True)
class ApiServer:
    kubeconfig: Path
    embedded: bool


@dataclass(frozen=True, slots=True)
class Space:
    """A test's own namespace, and the paths in it."""

    api: ApiClient
    name: str

    def path(self, plural: str, name: str = "", subresource: str = "") -> str:
        group = {
            "pods": "/api/v1",
            "events": "/api/v1",
            "secrets": "/api/v1",
            "services": "/api/v1",
            "statefulsets": "/apis/apps/v1",
            "leases": "/apis/coordination.k8s.io/v1",
        }.get(plural, "/apis/headrace.io/v1alpha1")
        below = "".join(f"/{part}" for part in (name, subresource) if part)
        return f"{group}/namespaces/{self.name}/{plural}{below}"

    async def create(self, plural: str, obj: dict[str, Any]) -> dict[str, Any]:
        answer = await self.api.request("POST", self.path(plural), obj)
        assert answer.status == 201, answer.text
        return answer.body

    async def read(self, plural: str, name: str) -> dict[str, Any]:
        answer = await self.api.get(self.path(plural, name))
        assert answer.status == 200, answer.text
        return answer.body


_TIMEOUT_S = patient(60)


@dataclass(frozen=True, slots=True)
class Kubectl:
    program: str
    kubeconfig: Path
    namespace: str
    cache: Path

    def command(self, *arguments: str) -> list[str]:
        options = ["--kubeconfig", str(self.kubeconfig), "--cache-dir", str(self.cache), "-n", self.namespace]
        return [self.program, *options, *arguments]

    def run(self, *arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        """Whatever it says and however it ends."""
        return subprocess.run(
            self.command(*arguments),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )

    def ok(self, *arguments: str, stdin: str = "") -> str:
        """What it prints; it must succeed."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    def refused(self, *arguments: str, stdin: str = "") -> str:
        """What it complains of; it must fail."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode != 0, f"kubectl {' '.join(arguments)} succeeded: {done.stdout}"
        return done.stderr
