"""A broker is asked to stop at any moment: before its first life, between two of them, and within one."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from headrace_broker.stop_signals import StopSignals
from tests.support.waiting import eventually

STOPPED_WHILE_LOADING = """
import os, signal, sys

class Loading:
    def find_spec(self, name, *_):
        if name == "headrace_broker.process":
            os.kill(os.getpid(), signal.SIGTERM)

sys.meta_path.insert(0, Loading())
from headrace_broker.main import main
main(sys.argv[1:])
"""


def test_should_stop_while_its_modules_are_loaded(tmp_path: Path) -> None:
    options = ["--id", "0", "--data", str(tmp_path / "data"), "--kubeconfig", str(tmp_path / "none")]
    command = [sys.executable, "-c", STOPPED_WHILE_LOADING, *options]
    # With this variable, Python says on stderr what took longer than 0.1 s.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONASYNCIODEBUG"}
    ended = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert not (tmp_path / "data").exists()


async def test_should_tell_a_life_what_is_asked_and_what_was_asked_before_it() -> None:
    told: list[signal.Signals] = []
    before = signal.getsignal(signal.SIGTERM)
    with StopSignals.noted() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.asked == [signal.SIGTERM]
        with signals.passed_to(told.append):
            assert told == [signal.SIGTERM]
            for _ in range(3):
                os.kill(os.getpid(), signal.SIGINT)
            await eventually(lambda: len(told) == 2, "it is told twice, and no more")
        with signals.passed_to(told.append):
            assert told == 2 * [signal.SIGTERM, signal.SIGINT]
    assert signal.getsignal(signal.SIGTERM) == before
