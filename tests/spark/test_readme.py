"""The README's section on PySpark, followed as a newcomer would, on a `headrace dev` that the tour has started."""

from pathlib import Path

import pytest

from tests.support.pages import follow, section
from tests.support.spark_bench import SHORT_LIVED

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
START = "```sh\nheadrace dev --detach\n```\n"


@pytest.mark.timeout(360)
def test_should_work_when_the_readme_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("JDK_JAVA_OPTIONS", SHORT_LIVED)
    run = follow(START + section(README, "PySpark in five minutes"), ROOT, tmp_path / "home", timeout_s=340)
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr}"
    for expected in ("be|    2|", "question"):
        assert expected in run.stdout, f"{expected!r} is not in:\n{run.stdout}\n{run.stderr}"
