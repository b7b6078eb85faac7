"""One list says which topics are Headrace's own, and it is complete."""

import re
from pathlib import Path

import headrace
from headrace.core.resources.internal_topics import (
    INTERNAL_TOPICS,
    STAGED_INTO,
    commits_manifest,
    internal_manifest,
    staging_manifest,
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
