"""A broker to measure: `headrace dev` in a folder and on ports of its own, gone at the end."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml


@contextmanager
def dev_broker(topics: Sequence[tuple[str, str]]) -> Iterator[tuple[str, Path]]:
    """(URL, folder) of one broker that leads the given topics of one partition; each is (name, durability)."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        folder = Path(name)
        manifest = folder / "topics.yaml"
        manifest.write_text(yaml.safe_dump_all(_topic(topic, durability) for topic, durability in topics))
        environment = {**os.environ, "HEADRACE_HOME": name}
        _headrace(environment, "dev", "--detach", "--port", "0", "--brokers", "1", "-f", str(manifest))
        try:
            state = json.loads(_headrace(environment, "dev", "status", "-o", "json"))
            yield state["brokers"][0]["url"], folder
        finally:
            _headrace(environment, "dev", "stop")


def _topic(name: str, durability: str) -> dict[str, Any]:
    return {
        "apiVersion": "headrace.io/v1alpha1",
        "kind": "Topic",
        "metadata": {"name": name},
        "spec": {"partitions": 1, "replicas": 1, "durability": durability},
    }


def _headrace(environment: dict[str, str], *arguments: str) -> str:
    command = [str(Path(sys.executable).with_name("headrace")), *arguments]
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
