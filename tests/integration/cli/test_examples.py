"""Every example in the help of every command, run as it stands on one real `headrace dev`.

The examples are collected from the commands: a new command without one fails a unit test, a new one that does not work
fails here. What needs no shell runs in this process, where it does not pay for an interpreter of its own.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest
import yaml

from headrace.cli.commands import examples_of
from headrace.cli.main import headrace, run
from headrace.cli.reference import commands
from tests.support.dev import Dev, dev_home, topic_manifest
from tests.support.patience import patient
from tests.support.waiting import wait_for

BIN: Final = str(Path(sys.executable).parent)
DEV: Final = "headrace dev --brokers 1 -f topics.yaml"
"""The example that all others need to be running."""
LIFE: Final = (DEV, "headrace dev stop", "headrace dev --detach")
SHELL: Final = re.compile(r"[|<>$&;]")
CREATED: Final = re.compile(r"topic create (\S+)")


def collected() -> list[str]:
    """Each line once; topics and groups are deleted when nobody needs them any more."""
    context = click.Context(headrace, info_name="headrace")
    lines = dict.fromkeys(example.line for each, _ in commands(headrace, context) for example in examples_of(each))
    return sorted(lines, key=lambda line: ("topic delete" in line) + ("group delete" in line))


LINES: Final = collected()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that examples read and write."""
    folder = tmp_path_factory.mktemp("examples")
    manifests = [topic_manifest("orders", partitions=6), topic_manifest("flights")]
    (folder / "topics.yaml").write_text(yaml.safe_dump_all(manifests))
    (folder / "orders.jsonl").write_text("".join(json.dumps({"id": f"o{i}", "n": i}) + "\n" for i in range(100)))
    (folder / "flights.csv").write_text("tailnum,origin\nN14228,EWR\n,JFK\n")
    for kept in (".zfunc", ".config/fish/completions"):
        (folder / kept).mkdir(parents=True)
    return folder


@pytest.fixture(scope="module")
def environment(place: Path) -> dict[str, str]:
    path = os.pathsep.join([BIN, os.environ["PATH"]])
    unset = ("HEADRACE_SERVER", "HEADRACE_CA_FILE", "KUBECONFIG")
    inherited = {name: value for name, value in os.environ.items() if name not in unset}
    return {**inherited, "HEADRACE_HOME": str(place / "home"), "HOME": str(place), "PATH": path}


@pytest.fixture(scope="module")
def dev(place: Path, environment: dict[str, str]) -> Iterator[Dev]:
    """The example that starts it, in the foreground, on free ports."""
    with (
        dev_home(place / "home") as home,
        (place / "dev.txt").open("wb") as said,
        subprocess.Popen(
            [*shlex.split(DEV), "--port", "0"], cwd=place, env=environment, stdout=said, stderr=subprocess.STDOUT
        ) as process,
    ):
        said_so_far = place / "dev.txt"

        def ready() -> bool:
            assert process.poll() is None, said_so_far.read_text()
            return "Ctrl-C stops it" in said_so_far.read_text()

        try:
            wait_for(ready, "headrace dev is ready")
            yield home
        finally:
            process.send_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def in_place(place: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    for name in ("HEADRACE_SERVER", "HEADRACE_CA_FILE", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HEADRACE_HOME", "HOME", "PATH"):
        monkeypatch.setenv(name, environment[name])


def test_should_find_the_examples_that_start_and_stop_everything() -> None:
    assert set(LIFE) < set(LINES)


@pytest.mark.usefixtures("dev")
@pytest.mark.parametrize("line", [line for line in LINES if line not in LIFE])
def test_should_work_as_the_help_says(
    line: str, environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    if "--follow" in line:
        follow(line, environment)
        return
    if (created := CREATED.search(line)) is not None and "--if-not-exists" not in line:
        run(["topic", "delete", created[1], "--if-exists"])
    if SHELL.search(line):
        command = ["bash", "-euo", "pipefail", "-c", line]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=patient(60), check=False
        )
        assert done.returncode == 0, done.stderr
    else:
        assert run(shlex.split(line)[1:]) == 0, capsys.readouterr().err


def follow(line: str, environment: dict[str, str]) -> None:
    """What has no end gets records until it shows one, and then Ctrl-C."""
    topic = shlex.split(line)[2]
    with subprocess.Popen(
        shlex.split(line), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)

        def shows_a_record() -> bool:
            assert run(["produce", topic, "topics.yaml", "--quiet"]) == 0
            assert process.stdout is not None
            return bool(process.stdout.read())

        wait_for(shows_a_record, f"{line} shows a record")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=patient(60))
    assert process.returncode == 130
    # On a loaded machine there may be a notice of trouble, or that this test has not read for a second; nothing else.
    expected = b"; trying again", b" N reads N and no more)"
    assert [line for line in errors.splitlines() if not line.endswith(expected)] == []


def test_should_stop_and_start_again_as_the_help_says(dev: Dev) -> None:
    assert run(shlex.split("dev stop")) == 0
    answer = dev.headrace(*shlex.split("dev --detach"), "--port", "0")
    assert answer.exit_code == 0, answer.stderr
    assert "Headrace is ready (1 broker)" in answer.stdout
