"""The `headrace` command pointed at the brokers that are shared; each test has topics of its own."""

import os
import sys
from pathlib import Path

import pytest

from headrace.cli.main import run
from tests.support.cluster import Cluster
from tests.support.command import Done, Headrace


@pytest.fixture
def environment(shared: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A home in which nothing runs: the cluster is named by the variables alone."""
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    monkeypatch.setenv("HEADRACE_SERVER", shared.url(0))
    monkeypatch.setenv("KUBECONFIG", str(shared.kubeconfig))
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
