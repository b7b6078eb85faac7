"""Commands on a pseudo-terminal, for tests of what people see there and pipes do not."""

import os
import pty
import subprocess
from collections.abc import Mapping
from contextlib import suppress

from tests.support.patience import patient


def on_terminal(command: str, environment: Mapping[str, str], timeout_s: float = 60) -> str:
    """What a shell's command shows, escape sequences and all. Fails when it fails."""
    ours, theirs = pty.openpty()
    with open(ours, "rb", buffering=0) as screen:
        with open(theirs, "rb", buffering=0) as terminal:
            process = subprocess.Popen(
                ["bash", "-c", command],
                env={**environment, "TERM": "xterm-256color", "COLUMNS": "120"},
                stdin=terminal,
                stdout=terminal,
                stderr=terminal,
            )
        shown = []
        with suppress(OSError):  # How Linux says that nobody has the terminal open any more.
            while piece := screen.read(65536):
                shown.append(piece)
        code = process.wait(patient(timeout_s))
    said = b"".join(shown).decode()
    assert code == os.EX_OK, said
    return said
