"""Where reading begins, as people say it."""

from datetime import UTC, datetime, timedelta

import click
import pytest

from headrace.cli.options import parse_start

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("0", 0),
        ("1763715600000", 1763715600000),
        ("1h ago", NOW - timedelta(hours=1)),
        ("30m ago", NOW - timedelta(minutes=30)),
        ("2d ago", NOW - timedelta(days=2)),
        ("1500ms ago", NOW - timedelta(seconds=1.5)),
        ("2026-11-20", datetime(2026, 11, 20, tzinfo=UTC)),
        ("2026-11-20T12:00:00", datetime(2026, 11, 20, 12, tzinfo=UTC)),
        ("2026-11-20T12:00:00Z", datetime(2026, 11, 20, 12, tzinfo=UTC)),
        ("2026-11-20T12:00:00+01:00", datetime(2026, 11, 20, 11, tzinfo=UTC)),
    ],
)
def test_should_understand(text: str, start: object) -> None:
    assert parse_start(text, NOW) == start


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("yesterday", "'yesterday' is neither earliest, latest, an offset such as 1200, nor a time such as '1h ago'"),
        ("-5", "'-5' is neither"),
        ("", "'' is neither"),
        ("1 hour ago", "'1 hour ago' is not how long ago: write a whole number and one of ms, s, m, h, d"),
        ("ago", "'ago' is neither"),
        ("99999999999999d ago", "is before all time"),
        ("9999999d ago", "is before all time"),
    ],
)
def test_should_say_how_to_write_what_it_does_not_understand(text: str, says: str) -> None:
    with pytest.raises(click.BadParameter, match=says):
        parse_start(text, NOW)
