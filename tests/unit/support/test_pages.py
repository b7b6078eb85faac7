"""Sections of a page of documentation."""

import pytest

from tests.support.pages import section

PAGE = "# Page\n\n## One\n\na\n\n### Within\n\nb\n\n## Two\n\nc\n"


def test_should_end_a_section_at_the_next_heading_that_is_not_below_it() -> None:
    assert section(PAGE, "One") == "## One\n\na\n\n### Within\n\nb\n\n"
    assert section(PAGE, "Within") == "### Within\n\nb\n\n"
    assert section(PAGE, "Two") == "## Two\n\nc\n"


def test_should_say_which_section_is_missing() -> None:
    with pytest.raises(LookupError, match="there is no section 'Three'"):
        section(PAGE, "Three")
