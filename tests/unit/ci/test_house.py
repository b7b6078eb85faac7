"""The numbers of the code, and the rules about names, docstrings, bounds and lengths that a program can check."""

import pytest
from house import (
    FILE_LINES_MAX,
    LIMITS,
    Source,
    bounds_not_shared,
    bounds_twice,
    classes_twice,
    defined_twice,
    faults,
    figures,
)

FETCH = '''"""A fetch from a partition's log.

It has two lines.
"""

from core.limits import (
    BATCH_BYTES,
    FETCH_MS_MAX,
)


class Fetch:
    """Of a partition."""

    def limit(self) -> int:
        # A comment is no code.
        return min(BATCH_BYTES, FETCH_MS_MAX)
'''


def fetch_with(text: str = "") -> Source:
    return Source.read("broker/fetch.py", FETCH + text)


def test_should_count_lines_of_code_without_comments_and_docstrings() -> None:
    assert fetch_with().lines == 17
    assert fetch_with().code_lines == 7
    assert fetch_with().import_lines == 4


@pytest.mark.parametrize("first", ["Of a log", "What is kept", "Once.", "To: be told"])
def test_should_name_the_place_of_a_docstring_that_begins_with_a_bare_word(first: str) -> None:
    source = fetch_with(f'\n\ndef kept() -> None:\n    """{first}, and six words more are left out."""\n')
    assert source.bare_docstrings[0] == "broker/fetch.py:13: Of a partition."
    assert source.bare_docstrings[1].startswith(f"broker/fetch.py:21: {first}")


@pytest.mark.parametrize("first", ["The log of a partition", "Return what is kept", "Offsets", ""])
def test_should_leave_a_docstring_alone_when_it_begins_with_a_noun_or_a_verb(first: str) -> None:
    assert len(fetch_with(f'\n\ndef kept() -> None:\n    """{first}"""\n').bare_docstrings) == 1


def test_should_find_public_names_that_two_files_define() -> None:
    other = Source.read(
        "headrace/fetch.py", "class Fetch: ...\nclass _Hidden: ...\nWAIT_MS = 1\n_KEPT_MS = 1\nSIZE = 1\n"
    )
    third = Source.read("headrace/hidden.py", "class _Hidden: ...\nWAIT_MS: int = 2\n_KEPT_MS = 1\nSIZE = 1\n")
    assert classes_twice([fetch_with(), other, third]) == {"Fetch": ["broker/fetch.py", "headrace/fetch.py"]}
    assert bounds_twice([fetch_with(), other, third]) == {"WAIT_MS": ["headrace/fetch.py", "headrace/hidden.py"]}
    assert defined_twice([]) == {}


def test_should_find_bounds_that_are_shared_by_nobody() -> None:
    limits = Source.read(LIMITS, "BATCH_BYTES = 1\nFETCH_MS_MAX = 2\nPARTITIONS = 3\nWINDOW_BYTES = BATCH_BYTES\n")
    other = Source.read("headrace/window.py", "from core import limits\nlimits.WINDOW_BYTES\n")
    third = Source.read("headrace/other.py", "from core.limits import WINDOW_BYTES\nFETCH_MS_MAX = 4\n")
    assert bounds_not_shared([fetch_with(), limits, other, third]) == {
        "FETCH_MS_MAX": ["broker/fetch.py"],
        "PARTITIONS": [],
    }


def test_should_say_each_fault_with_its_place() -> None:
    long = Source.read("headrace/long.py", "class Fetch: ...\n" + "\n" * FILE_LINES_MAX)
    limits = Source.read(LIMITS, "PARTITIONS = 3\n")
    assert faults([fetch_with(), long, limits]) == [
        "broker/fetch.py:13: Of a partition.: a docstring begins with a noun phrase or a verb",
        "class Fetch: broker/fetch.py, headrace/long.py",
        f"{LIMITS}: PARTITIONS belongs into the module that uses it (none does)",
        f"headrace/long.py: {FILE_LINES_MAX + 1} lines, {FILE_LINES_MAX} at most",
    ]


def test_should_count_what_there_is() -> None:
    test = Source.read("tests/test_fetch.py", FETCH)
    counted = {
        what.strip(): number for what, number in figures([fetch_with(), Source.read(LIMITS, "A_MS = 1\n")], [test])
    }
    assert counted["product files"] == "2"
    assert counted["lines of code (SLOC)"] == "8"
    assert counted["median file, SLOC"] == "4"
    assert counted["imports, share of SLOC"] == "50.0%"
    assert (counted["bounds"], counted["there, but not shared"]) == ("1", "1")
    assert (counted["test files"], counted["lines"]) == ("1", "17")
