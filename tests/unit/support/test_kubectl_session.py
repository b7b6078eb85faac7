"""The form of recorded sessions: what is typed, what comes back, and what is replaced in it."""

from pathlib import Path

import pytest

from tests.support.kubectl_session import NAMESPACE, Shell, Step, normalised, parse, render

_TEXT = """\
# Two lines
# of prose.
$ cat; echo oh >&2; exit 3
< a
<
< b: c
| a
|
| b: c
! oh
= 3

$ true
"""


def _lines(text: str) -> list[str]:
    return normalised(text, {})


def test_should_read_and_write_the_same_text() -> None:
    text = _TEXT.replace("<\n", "< \n").replace("|\n", "| \n")
    steps = parse(text)
    assert steps == [
        Step("cat; echo oh >&2; exit 3", ("Two lines", "of prose."), ("a", "", "b: c"), ("a", "", "b: c"), ("oh",), 3),
        Step("true"),
    ]
    assert render(steps) == text


@pytest.mark.parametrize("line", ["kubectl get topics", "$kubectl", "| a\nb"])
def test_should_refuse_a_line_of_no_known_kind(line: str) -> None:
    with pytest.raises(ValueError, match="a session's line begins with"):
        parse(f"$ true\n{line}")


def test_should_play_a_step_in_its_own_folder_and_namespace(tmp_path: Path) -> None:
    shell = Shell(tmp_path, {"WORD": "here"}, "session-12345678")
    played = shell.play(Step(f"cat; echo {NAMESPACE} $WORD $PWD >&2; exit 3", stdin=(NAMESPACE,)))
    assert (played.stdout, played.stderr, played.exit_code) == ((NAMESPACE,), (f"{NAMESPACE} here HERE",), 3)
    assert shell.play(Step("echo session-12345678 >kept; cat kept")).stdout == (NAMESPACE,)


def test_should_wait_for_what_a_command_in_the_background_writes(tmp_path: Path) -> None:
    shell = Shell(tmp_path, {}, "session-12345678")
    shell.play(Step("(echo one; seen go turn; echo two) >written 2>&1 &"))
    assert shell.play(Step("first 1 written; echo go >turn; first 2 written")).stdout == ("one", "one", "two")


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("uid: 0f6c1d2e-0000-4000-8000-123456789abc", "uid: UID"),
        ('creationTimestamp: "2026-11-21T09:00:00Z"', 'creationTimestamp: "MOMENT"'),
        ('lastTransitionTime: "1970-01-01T00:00:00Z"', 'lastTransitionTime: "1970-01-01T00:00:00Z"'),
        ('resourceVersion: "123"', 'resourceVersion: "VERSION"'),
        ("  Resource Version:    123", "  Resource Version:    VERSION"),
        ("Server Version: v1.36.0+headrace-dev", "Server Version: v1.36.PATCH"),
        ("flights   6   3   2s    Pending", "flights   6   3   AGE   Pending"),
        ("flights   6   3   1m2s", "flights   6   3   AGE"),
        ("    Min Lag:  0s", "    Min Lag:  0s"),
        ("flights   7d", "flights   7d"),
        ("too old resource version: 1 (17)", "too old resource version: VERSION (VERSION)"),
    ],
)
def test_should_replace_what_differs_from_run_to_run(said: str, kept: str) -> None:
    assert _lines(said) == [kept]


def test_should_bring_broken_rules_into_one_order() -> None:
    assert _lines("is invalid: \n* spec.b: no\n* spec.a: no\nend") == [
        "is invalid: ",
        "* spec.a: no",
        "* spec.b: no",
        "end",
    ]
    assert _lines("x is invalid: [spec.b: 1, 2, metadata.a: no]") == ["x is invalid: [metadata.a: no, spec.b: 1, 2]"]


def test_should_not_tell_what_the_library_of_kubectl_says_to_itself() -> None:
    assert _lines('E1121 23:38:40.368112    6062 reflector.go:227] "Failed to watch"\nerror: no') == ["error: no"]
