"""The embedded API as a process of its own, for tests that need an API server."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

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
