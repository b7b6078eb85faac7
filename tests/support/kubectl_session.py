"""Recorded kubectl sessions: what was typed into a shell, and what came back, in one text file that people can read.

    # Prose, up to the first line of another kind. Blank lines stand between the steps.
    $ kubectl apply -f - | cat          a command for sh, in a folder and a namespace of the session's own
    < apiVersion: headrace.io/v1alpha1  a line of its standard input
    | topic.headrace.io/flights created a line of its standard output
    ! Warning: unknown field "spec.x"   a line of its standard error
    = 1                                 its exit code, where that is not 0

`parse` and `render` are each other's inverse. `normalised` replaces what differs from run to run (uids, versions,
moments, names of temporary files and namespaces) by words, so that a recording made on a real kube-apiserver can be
compared word for word with what any other server makes kubectl say. Called by `tests/contract/test_sessions.py`.
"""

import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tests.support.patience import patient

NAMESPACE = "session-NAME----"
COMMAND_TIMEOUT_S = patient(60)
_FOLLOW_TIMEOUT_S = patient(30)
_PRELUDE = f"""
follow() {{ : >>"$1"; timeout {_FOLLOW_TIMEOUT_S} tail -n +1 -f "$1" 2>/dev/null; }}
# first N FILE: the first N lines of what a command in the background writes there, once they are there.
first() {{ follow "$2" | head -n "$1"; }}
# seen TEXT FILE: wait until a line with this text is there.
seen() {{ follow "$2" | grep -q -m 1 -e "$1"; }}
"""


@dataclass(frozen=True, slots=True)
class Step:
    command: str
    prose: tuple[str, ...] = ()
    stdin: tuple[str, ...] = ()
    stdout: tuple[str, ...] = ()
    stderr: tuple[str, ...] = ()
    exit_code: int = 0


def parse(text: str) -> list[Step]:
    """Raises ValueError for a line of no known kind."""
    return [_step(block) for block in re.split(r"\n{2,}", text.strip("\n"))]


def render(steps: Iterable[Step]) -> str:
    return "\n".join("\n".join([*_lines(step), ""]) for step in steps)


def _step(block: str) -> Step:
    lines: dict[str, list[str]] = {mark: [] for mark in "#$<|!="}
    for line in block.splitlines():
        if line[:1] not in lines or line[1:2] not in ("", " "):
            raise ValueError(f"a session's line begins with one of # $ < | ! = and a space, not as {line!r}")
        lines[line[0]].append(line[2:])
    (command,) = lines["$"]
    (exit_code,) = lines["="] or ["0"]
    return Step(
        command,
        tuple(lines["#"]),
        tuple(lines["<"]),
        tuple(lines["|"]),
        tuple(lines["!"]),
        int(exit_code),
    )


def _lines(step: Step) -> Iterable[str]:
    marked = {"#": step.prose, "$": [step.command], "<": step.stdin, "|": step.stdout, "!": step.stderr}
    for mark, lines in marked.items():
        yield from (f"{mark} {line}".rstrip() if mark in "#$" else f"{mark} {line}" for line in lines)
    if step.exit_code:
        yield f"= {step.exit_code}"


@dataclass(frozen=True, slots=True)
class Shell:
    """Where the commands of one session run."""

    folder: Path
    environment: Mapping[str, str]
    namespace: str
    """The session's own; as long as NAMESPACE, which stands for it in the text, so that columns keep their width."""

    def play(self, step: Step) -> Step:
        """The step as it goes now."""
        done = subprocess.run(
            ["sh", "-c", _PRELUDE + self._own(step.command)],
            input=self._own("".join(f"{line}\n" for line in step.stdin)),
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={**os.environ, **self.environment, "TMPDIR": str(self.folder)},
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        words = {self.namespace: NAMESPACE, str(self.folder): "HERE"}
        stdout, stderr = (tuple(normalised(text, words)) for text in (done.stdout, done.stderr))
        return replace(step, stdout=stdout, stderr=stderr, exit_code=done.returncode)

    def _own(self, text: str) -> str:
        return text.replace(NAMESPACE, self.namespace)


_WORDS: tuple[tuple[str, str], ...] = (
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID"),
    # Of these years only: a moment that a session itself names lies before them, and is to be seen.
    (r"20[2-9]\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?( ?[+-]\d{4}|Z)", "MOMENT"),
    (r'(?<=resourceVersion: ")\d+(?=")', "VERSION"),
    (r'(?<="resourceVersion": ")\d+(?=")', "VERSION"),
    (r'(?<="resourceVersion":")\d+(?=")', "VERSION"),
    (r"(?<=Resource Version:)( +)\d+", r"\1VERSION"),
    (r'(?<=\\"resourceVersion\\":\\")\d+', "VERSION"),
    (r"(?<=too old resource version: )\d+ \(\d+\)", "VERSION (VERSION)"),
    (r"(?<=kubectl-edit-)\d+(?=\.yaml)", "FILE"),
    (r"(?<=/)(LIVE|MERGED)-\d+", r"\1-FOLDER"),
    (r"v1\.36\.\d\S*", "v1.36.PATCH"),
)
_LOG_LINE = re.compile(r"[EIW]\d{4} \d\d:\d\d:\d\d\.")
"""What kubectl's library says to itself while it stops: now and then, on any server."""
_BROKEN_RULES = re.compile(r"(?<=is invalid: \[).*(?=\]$)")
_NEXT_RULE = re.compile(r", (?=(?:spec|status|metadata|<nil>)[\w.\[\]]*: )")
_AGE = re.compile(r"(?<=[^:\s])(  +)((?:\d+m)?\d+s|\d+m)(?=  |$)( *)")
"""The age of something new, in a column of its own; `Key:  0s` of `kubectl describe` is none."""
_RULE = re.compile(r"# \* |\* |# {3}\*")


def normalised(text: str, words: Mapping[str, str]) -> list[str]:
    """The lines of `text` as they are compared."""
    for found, word in words.items():
        text = text.replace(found, word)
    for pattern, word in _WORDS:
        text = re.sub(pattern, word, text)
    lines = [_AGE.sub(_age, line) for line in text.splitlines() if not _LOG_LINE.match(line)]
    return _sorted_rules([_BROKEN_RULES.sub(_sorted_list, line) for line in lines])


def _age(found: re.Match[str]) -> str:
    return found[1] + "AGE".ljust(len(found[2] + found[3])) if found[3] else f"{found[1]}AGE"


def _sorted_list(found: re.Match[str]) -> str:
    return ", ".join(sorted(set(_NEXT_RULE.split(found[0]))))


def _sorted_rules(lines: list[str]) -> list[str]:
    """Kubernetes lists broken rules in any order, some twice; kubectl shows them in brackets, or each after a star."""
    ordered: list[str] = []
    rules: set[str] = set()
    for line in lines:
        if _RULE.match(line):
            rules.add(line)
            continue
        ordered += [*sorted(rules), line]
        rules = set()
    return [*ordered, *sorted(rules)]
