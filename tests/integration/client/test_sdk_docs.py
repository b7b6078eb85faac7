"""docs/sdk.md, run from top to bottom as one program."""

import re
import subprocess
import sys
from inspect import signature
from pathlib import Path

import pytest

from headrace import Producer
from tests.support.client_bench import Bench
from tests.support.patience import patient

PAGE = Path(__file__).parents[3] / "docs" / "sdk.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RECORD = re.compile(r"^\d \d+ (?:None|b'\w+') b'.+' \(.*\)$", re.MULTILINE)


def test_should_work_when_the_page_is_followed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    page = PAGE.read_text()
    assert "headrace topic create orders --partitions 3" in page
    bench.cluster.create_topic("orders", partitions=3)
    monkeypatch.setenv("HEADRACE_SERVER", bench.server)
    program = "\n".join(BLOCK.findall(page))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=patient(110), check=False
    )
    assert done.returncode == 0, done.stderr
    for expected in (
        *("3 records in", "100000 lines", "100004 rows, 3 partitions"),
        *(
            "bill b'ada'",
            "0 orders are left to be billed",
            "audit is at GroupOffset(offset=5, metadata='looked at by ada'",
        ),
        *("mine now: [0, 1, 2]", "at 1 of one of 3", "[TopicPartition(topic='orders', partition=0)"),
        *("b'eve' b'mate'", "b'eve' b'milk'", "nothing new at", "no-such-topic", "limit is 8388608"),
    ):
        assert expected in done.stdout, f"{expected!r} is not in:\n{done.stdout[-3000:]}"
    assert "more rows" not in done.stdout
    assert len(RECORD.findall(done.stdout)) == 10, "Reading prints a few records, and not all of 100,000"


def test_should_state_the_defaults_that_there_are() -> None:
    defaults = {name: option.default for name, option in signature(Producer).parameters.items()}
    assert (defaults["acks"], defaults["linger_ms"], defaults["compression"]) == ("all", 5, "none")
    assert (defaults["batch_bytes"], defaults["buffer_bytes"]) == (1 << 20, 64 << 20)
    assert defaults["delivery_timeout_ms"] == 120_000
