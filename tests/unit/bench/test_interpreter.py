"""The build of the Python that runs a benchmark."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from bench import interpreter

CHECKOUT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("configured", "schemes", "optimised"),
    [
        ("'--enable-optimizations' '--with-lto'", ("posix_prefix",), True),
        ("'--enable-shared'", ("posix_prefix", "deb_system"), True),
        ("'--enable-shared'", ("posix_prefix",), False),
        (None, ("posix_prefix",), False),
    ],
)
def test_should_know_an_optimised_build(
    monkeypatch: pytest.MonkeyPatch, configured: str | None, schemes: tuple[str, ...], *, optimised: bool
) -> None:
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: configured)
    monkeypatch.setattr(sysconfig, "get_scheme_names", lambda: schemes)
    assert interpreter.is_optimised() is optimised
    assert ("built with PGO" in interpreter.described()) is optimised


def test_should_answer_for_an_interpreter_that_has_nothing_of_ours() -> None:
    asked = [sys.executable, "-I", "-S", str(CHECKOUT / "bench" / "interpreter.py")]
    answer = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert answer.stdout == interpreter.described() + "\n"
    assert answer.returncode == (0 if interpreter.is_optimised() else 1)
