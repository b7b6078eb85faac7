"""Positions as Spark keeps them."""

import json

import pytest

from headrace.core.errors import LocalError
from headrace.spark.offsets import SourcePartition, from_json, to_json


def test_should_be_the_same_text_when_they_are_the_same() -> None:
    offsets = {SourcePartition("b", "u2", 10): 7, SourcePartition("b", "u2", 9): 8, SourcePartition("a", "u1", 0): 1}
    document = to_json(offsets)
    assert json.dumps(document) == (
        '{"a": {"uid": "u1", "offsets": {"0": 1}}, "b": {"uid": "u2", "offsets": {"9": 8, "10": 7}}}'
    )
    assert from_json(json.loads(json.dumps(document))) == offsets
    assert json.dumps(to_json(from_json(document))) == json.dumps(document)


@pytest.mark.parametrize("document", [{"a": {"0": 1}}, {"a": 5}, {"a": {"uid": "u", "offsets": {"x": 1}}}, {"a": None}])
def test_should_refuse_what_another_source_has_written(document: dict[str, object]) -> None:
    with pytest.raises(LocalError, match="is it the checkpoint of another source"):
        from_json(document)
