"""The demo as `make demo` runs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace import Producer
from tests.support.dev import dev_home
from tests.support.patience import patient

DEMO = Path(__file__).parents[3] / "examples" / "flights" / "demo.py"


@pytest.mark.timeout(200)
def test_should_check_every_flight_beside_records_of_others(tmp_path: Path) -> None:
    """What an earlier run, or anybody else, has written must neither be counted nor be touched."""
    environment = {**os.environ, "HEADRACE_HOME": str(tmp_path)}
    with dev_home(tmp_path) as dev:
        dev.start("--brokers", "2")
        assert dev.headrace("topic", "create", "flights", "--partitions", "6").exit_code == 0
        with Producer(dev.status()["brokers"][0]["url"]) as producer:
            producer.send_batch("flights", values=["not a flight"] * 100, keys=[f"N{i}" for i in range(100)])
        done = subprocess.run(
            [sys.executable, str(DEMO)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=patient(170),
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "336,776 flights came back, 4,043 aircraft each in their order" in done.stdout
    assert "58,665" in done.stdout


def test_should_say_what_is_missing_when_nothing_runs(tmp_path: Path) -> None:
    environment = {**os.environ, "HEADRACE_HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "none")}
    done = subprocess.run(
        [sys.executable, str(DEMO)], env=environment, capture_output=True, text=True, timeout=patient(60), check=False
    )
    assert done.returncode == 1
    assert "demo: " in done.stdout
    assert "Traceback" not in done.stderr
