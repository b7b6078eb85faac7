"""One list says which topics are Headrace's own, and it is complete."""

import re
from pathlib import Path

import pytest

import headrace
from headrace.core.errors import InternalTopicError
from headrace.core.resources.internal_topics import (
    INTERNAL_TOPICS,
    STAGED_INTO,
    InternalTopics,
    commits_manifest,
    internal_manifest,
    staging_manifest,
)
from headrace.core.types import TopicName

INTERNAL = InternalTopics("headrace-system")
OFFSETS, COMMITS, STAGING = (
    TopicName("headrace-system", name) for name in ("headrace-offsets", "headrace-commits", "headrace-staging")
)

_NAMED = re.compile(r'^\w+_TOPIC\b.* = "(headrace-[a-z]+)"', re.MULTILINE)


def test_should_list_every_topic_that_the_code_names() -> None:
    root = Path(headrace.__file__).parents[1]
    sources = [path for folder in ("headrace", "broker", "operator") for path in (root / folder).rglob("*.py")]
    named = {name for path in sources for name in _NAMED.findall(path.read_text())}
    assert named == INTERNAL_TOPICS


def test_should_list_every_topic_that_brokers_make() -> None:
    made = [make("default", "headrace", 1) for make in (commits_manifest, staging_manifest)]
    assert {manifest["metadata"]["name"] for manifest in made} <= INTERNAL_TOPICS
    assert internal_manifest("x", "default", "headrace", {})["metadata"]["labels"]["headrace.io/internal"] == "true"


def test_should_let_clients_write_to_the_topic_of_stages_alone() -> None:
    assert frozenset({"headrace-staging"}) == STAGED_INTO < INTERNAL_TOPICS
    INTERNAL.check_writable(STAGING, stages=True)
    with pytest.raises(InternalTopicError, match=r"written by brokers alone: ask about writers \(.*/writers/"):
        INTERNAL.check_writable(STAGING)
    with pytest.raises(InternalTopicError, match=r"written by brokers alone: ask about consumer groups \(.*/groups/"):
        INTERNAL.check_writable(OFFSETS, stages=True)


def test_should_let_brokers_alone_read_and_delete() -> None:
    INTERNAL.check_readable(OFFSETS, by_broker=True)
    INTERNAL.check_deletable(COMMITS, by_broker=True)
    with pytest.raises(InternalTopicError, match="is read by brokers alone"):
        INTERNAL.check_readable(OFFSETS)
    with pytest.raises(InternalTopicError, match="is deleted from by brokers alone"):
        INTERNAL.check_deletable(COMMITS)


@pytest.mark.parametrize("name", [TopicName("default", "headrace-offsets"), TopicName("headrace-system", "flights")])
def test_should_leave_all_other_topics_to_clients(name: TopicName) -> None:
    INTERNAL.check_writable(name)
    INTERNAL.check_readable(name)
    INTERNAL.check_deletable(name)
