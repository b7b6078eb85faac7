"""Rules about change: what a field was decides what it may become."""

import pytest

from tests.support.api_objects import consumer_group, topic
from tests.support.api_server import Space


async def test_should_let_partitions_grow_and_never_shrink(space: Space) -> None:
    await space.create("topics", topic(partitions=6))
    path = space.path("topics", "flights")

    answer = await space.api.merge(path, {"spec": {"partitions": 3}})
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.message == (
        'Topic.headrace.io "flights" is invalid: spec.partitions: Invalid value: 3: partitions can grow, never shrink'
    )
    assert (await space.api.merge(path, {"spec": {"partitions": 7}})).status == 200


async def test_should_name_every_rule_that_a_replace_breaks(space: Space) -> None:
    obj = await space.create("topics", topic(partitions=6))
    obj["spec"] |= {"partitions": 5, "cluster": "other"}
    answer = await space.api.request("PUT", space.path("topics", "flights"), obj)
    assert answer.causes == {
        ("spec.partitions", "FieldValueInvalid", "Invalid value: 5: partitions can grow, never shrink"),
        ("spec.cluster", "FieldValueInvalid", 'Invalid value: "other": cluster is immutable: create a new topic'),
    }


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"cluster": "other"}, 'spec.cluster: Invalid value: "other": cluster is immutable'),
        ({"type": "Spark"}, 'spec.type: Invalid value: "Spark": type is immutable'),
    ],
)
async def test_should_keep_immutable_fields(space: Space, spec: dict[str, str], message: str) -> None:
    await space.create("consumergroups", consumer_group())
    answer = await space.api.merge(space.path("consumergroups", "billing"), {"spec": spec})
    assert answer.status == 422
    assert answer.message == f'ConsumerGroup.headrace.io "billing" is invalid: {message}'


async def test_should_not_judge_a_transition_on_create(space: Space) -> None:
    created = await space.create("topics", topic(cluster="other"))
    assert created["spec"]["cluster"] == "other"
