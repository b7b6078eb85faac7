"""A topic's spec survives being written down beside its data."""

import pytest

from headrace.core.resources.topic import TopicSpec


@pytest.mark.parametrize(
    "spec",
    [
        {"partitions": 6},
        {"partitions": 1, "replicas": 1, "retention": {"time": "unlimited", "bytes": "10Gi"}},
        {"partitions": 2, "durability": "Replicated", "deletionPolicy": "Retain", "segment": {"bytes": "1Mi"}},
    ],
)
def test_should_parse_to_the_same_when_it_is_written_out(spec: dict[str, object]) -> None:
    parsed = TopicSpec.parse(spec)
    assert TopicSpec.parse(parsed.to_object()) == parsed
