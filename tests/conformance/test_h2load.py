"""h2load: every request of many at once is answered well, whatever they ask for."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.conformance.conftest import Served
from tests.support.batches import batch_of
from tests.support.patience import patient
from tests.support.tools import require_tool
from tests.support.world import BATCH


def load(url: str, *options: str, requests: int) -> str:
    """h2load's report. Fails unless every request was answered with 2xx."""
    h2load = require_tool("h2load")
    command = [h2load, "-n", str(requests), "-t", "1", *options, url]
    report = subprocess.run(command, capture_output=True, text=True, timeout=patient(100), check=True).stdout
    n = requests
    assert f"{n} total, {n} started, {n} done, {n} succeeded, 0 failed, 0 errored, 0 timeout" in report, report
    assert f"status codes: {n} 2xx, 0 3xx, 0 4xx, 0 5xx" in report, report
    return report


@pytest.fixture(scope="module")
def records(served: Served) -> str:
    served.cluster.create_topic("loaded")
    return f"{served.url}/v1/namespaces/default/topics/loaded/partitions/0/records"


@pytest.mark.parametrize("shape", [("-c", "1", "-m", "100"), ("-c", "40", "-m", "10"), ("-c", "20", "-m", "1")])
def test_should_answer_small_requests(served: Served, shape: tuple[str, ...]) -> None:
    load(f"{served.url}/healthz", *shape, requests=4_000)


def test_should_take_and_give_records(records: str, tmp_path: Path) -> None:
    batch = tmp_path / "batch"
    batch.write_bytes(batch_of(*(bytes(100) for _ in range(1_000))))
    load(records, "-c", "8", "-m", "8", "-d", str(batch), "-H", f"content-type: {BATCH}", requests=500)
    size = batch.stat().st_size
    report = load(f"{records}?offset=0&maxBytes=4194304", "-c", "4", "-m", "4", "-H", f"accept: {BATCH}", requests=40)
    received = re.search(r"\((\d+)\) data", report)
    assert received is not None, report
    assert int(received[1]) >= 40 * 30 * size, "each answer has megabytes"


def test_should_serve_those_who_open_small_windows(records: str) -> None:
    """16 KiB - 1 a stream and 64 KiB - 1 for all: many WINDOW_UPDATEs, and streams that wait for each other."""
    load(f"{records}?offset=0&maxBytes=1048576", "-w", "14", "-W", "16", "-c", "2", "-m", "8", requests=20)
