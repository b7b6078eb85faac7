"""Names and settings are explained before the API server sees them; values are its business."""

import click
import pytest

from headrace.cli.topic_spec import check_name, topic_spec


@pytest.mark.parametrize("name", ["orders", "a", "a-1", "0", "x" * 63])
def test_should_take_dns_labels(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [("my_topic", "my-topic"), ("Orders", "orders"), ("a.b", "a-b"), ("-a-", "a"), ("x" * 64, "x" * 63), ("Ünï", "n")],
)
def test_should_suggest_a_name_when_it_is_no_dns_label(name: str, suggestion: str) -> None:
    with pytest.raises(click.BadParameter, match=rf"is a DNS label.*; try {suggestion}\."):
        check_name(name)


def test_should_suggest_nothing_when_nothing_is_left() -> None:
    with pytest.raises(click.BadParameter, match=r"at most 63 characters\."):
        check_name("___")


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
    ],
)
def test_should_name_the_form_when_a_setting_is_wrong(setting: str, says: str) -> None:
    with pytest.raises(click.BadParameter, match=says):
        topic_spec(1, 1, [setting])
