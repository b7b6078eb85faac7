"""docs/spark.md, run from top to bottom as one program, and what it says of options and limits."""

import os
import re
import subprocess
import sys
from pathlib import Path

from headrace.core.limits import DELIVERY_TIMEOUT_MS_DEFAULT
from headrace.spark.read_options import READ_OPTIONS, SPARK_ROWS_PER_TRIGGER_DEFAULT
from tests.support.patience import patient
from tests.support.spark_bench import SHORT_LIVED, SparkBench

PAGE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_should_work_when_the_page_is_followed(bench: SparkBench) -> None:
    assert "headrace topic create flights --partitions 3" in PAGE
    assert "headrace topic create counts --partitions 2" in PAGE
    bench.cluster.create_topic("flights", partitions=3)
    bench.cluster.create_topic("counts", partitions=2)
    environment = {
        **os.environ,
        "HEADRACE_SERVER": bench.server,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JDK_JAVA_OPTIONS": SHORT_LIVED,
    }
    program = "\n".join(BLOCK.findall(PAGE))
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        cwd=bench.folder,
        capture_output=True,
        text=True,
        timeout=patient(150),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for expected in (
        *(" |-- timestampType: integer", "1000 flights", "|carrier|", "|     UA|"),
        *("10 records of one partition", "micro-batches of [400, 400, 200]", "1003 records"),
    ):
        assert expected in done.stdout, f"{expected!r} is not in:\n{done.stdout}"


def test_should_list_every_option_once() -> None:
    table = PAGE.split("## Options")[1].split("What else differs")[0]
    listed = [
        name for row in re.findall(r"^\| (`.+?`) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    ]
    assert sorted(listed) == sorted(READ_OPTIONS)


def test_should_state_the_defaults_that_there_are() -> None:
    assert f"| `maxOffsetsPerTrigger` | {SPARK_ROWS_PER_TRIGGER_DEFAULT} |" in PAGE
    assert f"| `timeoutMs` | {DELIVERY_TIMEOUT_MS_DEFAULT} |" in PAGE
