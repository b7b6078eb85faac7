"""The README's tour, run as a newcomer would: every `sh` and `python` block, in order, in one shell.

Its section on PySpark is followed in tests/spark, where PySpark and Java are.
"""

from pathlib import Path

import pytest

from tests.support.pages import follow, section
from tests.support.tools import require_tool

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text()


@pytest.mark.timeout(360)
def test_should_work_when_the_readme_is_followed(tmp_path: Path) -> None:
    require_tool("curl")
    tour = README.replace(section(README, "PySpark in five minutes"), "")
    run = follow(tour, ROOT, tmp_path / "home", timeout_s=340)
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr}"
    for expected in (
        "orders created",
        "condition met",
        '"lastOffset"',
        '{"offset": 0, "timestamp"',
        "scones",
        "third",
        "default/billing   Empty   0 members   lag 1 ",
        "written at",
        "100008 records",
        "read back",
        "ms avg latency",
    ):
        assert expected in run.stdout, f"{expected!r} is not in:\n{run.stdout}\n{run.stderr}"


def test_should_print_the_example_that_there_is() -> None:
    assert (ROOT / "examples" / "spark" / "wordcount.py").read_text() in README
