"""The search for examples: every file with a property has its turn, and a property that fails is found and shown."""

import subprocess
import sys
from itertools import islice
from pathlib import Path
from random import Random

from tests.search import files_with_properties, shares
from tests.support.patience import patient

PROPERTY = """
from hypothesis import given
from hypothesis import strategies as st


@given(st.integers())
def test_should_be_small(number: int) -> None:
    assert number < 1_000_000
"""


def test_should_find_the_files_with_properties(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "test_one.py").write_text(PROPERTY)
    (tmp_path / "test_other.py").write_text('"""No hypothesis is tried here."""\n')
    assert files_with_properties(tmp_path) == [str(tmp_path / "deep" / "test_one.py")]


def test_should_give_each_file_its_turn_before_any_again() -> None:
    files = [f"test_{number}.py" for number in range(20)]
    found = [*islice(shares(files, Random(1)), 8)]
    rounds = [[file for share in found[at : at + 4] for file in share.files] for at in (0, 4)]
    assert sorted(rounds[0]) == sorted(rounds[1]) == sorted(files)
    assert rounds[0] != rounds[1]
    assert len({share.seed for share in found}) == len(found)
    assert [*islice(shares(files, Random(1)), 8)] == found


def test_should_show_the_example_when_a_property_fails(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("import tests.conftest\n")  # which knows the profile
    (tmp_path / "test_one.py").write_text(PROPERTY)
    command = [sys.executable, "-m", "tests.search", "1", "--seed", "7", "--folder", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=patient(100))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "number=1000000" in done.stderr
    assert "again: " in done.stderr
