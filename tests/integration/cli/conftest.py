"""One Headrace of real processes, and the `headrace` command pointed at it; each test has topics of its own."""

import os
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from headrace.cli.main import run
from tests.support.cluster import Cluster, running_cluster
from tests.support.command import Done, Headrace

_numbers = count()


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), brokers=2) as running:
        yield running


@pytest.fixture
def topic() -> str:
    return f"topic-{next(_numbers)}"


@pytest.fixture
def environment(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A home in which nothing runs: the cluster is named by the variables alone."""
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    monkeypatch.setenv("HEADRACE_SERVER", cluster.url(0))
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    return dict(os.environ)


@pytest.fixture
def headrace(
    environment: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Headrace:
    """Runs a command line in this process: starting an interpreter for each would take most of the time."""

    def command(*arguments: str, stdin: str = "") -> Done:
        (tmp_path / "stdin").write_text(stdin)
        with (tmp_path / "stdin").open() as piped:
            monkeypatch.setattr(sys, "stdin", piped)
            code = run(arguments)
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return command
