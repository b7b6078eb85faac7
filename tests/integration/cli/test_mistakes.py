"""The mistakes of people who know Kafka's tools and not ours, and what they are told: `tests/golden/headrace`.

`HEADRACE_REWRITE_GOLDEN=1` records the answers anew. Whoever does reads each of them: does it name the cause and the
remedy, in plain words, with the exit code of its kind?
"""

import difflib
import os
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.command import Headrace
from tests.support.kubectl_session import normalised, parse, render

_MISTAKES = Path(__file__).parents[2] / "golden" / "headrace" / "mistakes.txt"
_REWRITE = os.environ.get("HEADRACE_REWRITE_GOLDEN") == "1"
_DURATION = re.compile(r"\b\d+\.\d s\b")
_VARIABLE = re.compile(r"[A-Z_]+=")


def test_should_say_what_is_wrong_and_what_to_do(
    shared: Cluster, headrace: Headrace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "broken").write_text("clusters: [")
    monkeypatch.chdir(tmp_path)
    words = {
        str(tmp_path): "HERE",
        str(Path.home()): "HOME",
        shared.url(0): "BROKER-0",
        shared.url(1): "BROKER-1",
        shared.api_url: "API",
    }
    recorded = _MISTAKES.read_text()
    played = []
    try:
        for step in parse(recorded):
            command = shlex.split(step.command)
            with monkeypatch.context() as variables:
                while _VARIABLE.match(command[0]):
                    name, _, value = command.pop(0).partition("=")
                    variables.setenv(name, value)
                done = headrace(*command[1:], stdin="".join(f"{line}\n" for line in step.stdin))
            stdout, stderr = (tuple(normalised(text, words)) for text in (done.stdout, done.stderr))
            played.append(replace(step, stdout=stdout, stderr=stderr, exit_code=done.returncode))
    finally:
        shared.delete_topic("orders")
    now = _DURATION.sub("N s", render(played))
    if _REWRITE:
        _MISTAKES.write_text(now)
        return
    difference = difflib.unified_diff(recorded.splitlines(), now.splitlines(), "recorded", "now", lineterm="", n=4)
    if now != recorded:
        pytest.fail("\n".join(difference), pytrace=False)
