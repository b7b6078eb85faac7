"""Names and settings are explained before the API server sees them; values are its business.

The options that say where reading begins, as people write them.
"""

from datetime import UTC, datetime, timedelta

import click
import pytest

from headrace.cli.options import check_topic_name, parse_start, topic_spec


def test_should_refuse_what_cannot_name_a_topic_as_a_parameter() -> None:
    check_topic_name("my-topic")
    with pytest.raises(click.BadParameter, match=r"is a DNS label.*; try my-topic\."):
        check_topic_name("my_topic")


def test_should_nest_settings_by_their_paths() -> None:
    settings = ["retention.time=7d", "retention.bytes=1Gi", "minInsyncReplicas=2", "uncleanLeaderElection=true"]
    assert topic_spec(6, 3, settings) == {
        "partitions": 6,
        "replicas": 3,
        "retention": {"time": "7d", "bytes": "1Gi"},
        "minInsyncReplicas": 2,
        "uncleanLeaderElection": True,
    }


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("retention.time", "write path=value, for example retention.time=7d"),
        ("retention=7d", "'retention' is no field of a topic; there are cleanupPolicy, "),
        ("minInsyncReplicas=two", "minInsyncReplicas is 'two': it must be a whole number"),
        ("uncleanLeaderElection=yes", "it must be true or false"),
        ("retention.time=7days", "'7days' is not a duration: write a whole number and one of ms, s, m, h, d"),
        ("maxMessageBytes=1MB", "'1MB' is not a quantity of bytes: write a whole number and one of k, M, "),
    ],
)
def test_should_name_the_form_when_a_setting_is_wrong(setting: str, says: str) -> None:
    with pytest.raises(click.BadParameter, match=says):
        topic_spec(1, 1, [setting])


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
