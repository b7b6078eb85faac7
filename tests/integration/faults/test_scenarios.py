"""Three scenarios of `make faults`, each in a network of its own: nothing acknowledged is lost, moved or doubled."""

import subprocess
import sys

import pytest

from tests.faults.network import why_not
from tests.support.patience import patient
from tests.support.tools import cannot_run


@pytest.mark.timeout(640)
@pytest.mark.parametrize("scenario", ["S2", "S6", "S12"])
def test_should_keep_every_promise_when_real_processes_fail(scenario: str) -> None:
    reason = why_not()
    if reason:
        cannot_run(f"no network namespaces here: {reason}")
    command = [sys.executable, "-m", "tests.faults", "--short", scenario]
    played = subprocess.run(command, capture_output=True, timeout=patient(630), check=False)
    assert played.returncode == 0, played.stdout.decode() + played.stderr.decode()
