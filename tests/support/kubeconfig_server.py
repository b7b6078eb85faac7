"""The embedded API as a process of its own, for tests that need an API server."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.patience import patient

STOP_TIMEOUT_S = patient(60)


@dataclass(frozen=True, slots=True)
class EmbeddedApi:
    url: str
    process: "subprocess.Popen[str]"

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@contextmanager
def embedded_api(data: Path, *arguments: str) -> Iterator[EmbeddedApi]:
    """Run it on a free port until the block ends; it must then stop cleanly, unless it was killed."""
    with start(data, "--port", "0", *arguments) as process:
        try:
            assert process.stdout is not None, "stdout is a pipe"
            url = process.stdout.readline().strip()
            assert url.startswith("http://"), f"the API did not start: {url!r}, exit code {process.poll()}"
            yield EmbeddedApi(url, process)
        finally:
            process.terminate()
            exit_code = process.wait(STOP_TIMEOUT_S)
        assert exit_code in (0, -signal.SIGKILL), f"the API ended with {exit_code}"


def start(data: Path, *arguments: str, **options: Any) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "headrace.dev.api", "--data", str(data), *arguments]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, **options)
