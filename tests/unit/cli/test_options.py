"""Names and settings are explained before the API server sees them; values are its business."""

import click
import pytest

from headrace.cli.options import check_topic_name, topic_spec


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
