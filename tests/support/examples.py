"""The number of examples that a property is tried with: as many as others, or so many times as many."""

from hypothesis import settings


def examples(times: float) -> settings:
    """Return settings for a property that needs more examples than others, or for one whose examples are costly.

    A factor, not a number, because each profile of tests/conftest.py has its own.
    """
    return settings(max_examples=max(1, round(times * settings().max_examples)))
