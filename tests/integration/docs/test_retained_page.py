"""docs/retained.md: its commands, run in order: no record is missing after an adoption, nor without its sets."""

from pathlib import Path

import pytest

from headrace_broker.partition.actions import ORPHAN_RETENTION_MS
from tests.support.pages import follow

PATH = Path(__file__).parents[3] / "docs" / "retained.md"


@pytest.mark.timeout(400)
def test_should_work_when_the_page_is_followed(tmp_path: Path) -> None:
    done = follow(PATH.read_text(), tmp_path, tmp_path / "home", timeout_s=380)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "DataAdopted" in done.stdout
    counts = [line for line in done.stdout.splitlines() if line.strip().isdecimal()]
    assert counts == ["100000", "100001", "100001"], f"{done.stdout}\n{done.stderr}"


def test_should_say_how_long_data_is_kept() -> None:
    assert ORPHAN_RETENTION_MS == 7 * 86_400_000
    assert "kept: seven days" in PATH.read_text()
