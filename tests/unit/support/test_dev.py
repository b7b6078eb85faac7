"""What is asked of processes that may end meanwhile."""

import os
import subprocess
import sys

from tests.support.dev import command_of


def test_should_have_no_command_once_it_has_ended() -> None:
    assert sys.executable.encode() in command_of(os.getpid())
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    assert command_of(ended.pid) == b""
