"""Lists of some objects: label selectors, field selectors."""

import pytest

from tests.support.kubeconfig_objects import topic
from tests.support.kubeconfig_space import Space

pytestmark = pytest.mark.contract


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("team=data", ["a"]),
        ("team==data", ["a"]),
        ("team!=data", ["b", "c"]),
        ("team in (data, ops)", ["a", "b"]),
        ("team notin (data)", ["b", "c"]),
        ("team", ["a", "b"]),
        ("!team", ["c"]),
        ("team,tier=1", ["a"]),
        ("team in (data,ops),tier notin (1)", ["b"]),
        ("tier>1", ["b"]),
        ("tier<2", ["a"]),
        ("team=", []),
        ("", ["a", "b", "c"]),
    ],
)
async def test_should_list_what_the_labels_say(space: Space, selector: str, names: list[str]) -> None:
    await space.create("topics", topic("a", labels={"team": "data", "tier": "1"}))
    await space.create("topics", topic("b", labels={"team": "ops", "tier": "2"}))
    await space.create("topics", topic("c"))
    listed = (await space.api.get(space.path("topics"), {"labelSelector": selector})).body["items"]
    assert [item["metadata"]["name"] for item in listed] == names


@pytest.mark.parametrize(
    ("selector", "names"),
    [("metadata.name=a", ["a"]), ("metadata.name!=a", ["b"]), ("metadata.name=a,metadata.namespace=nowhere", [])],
)
async def test_should_list_what_the_fields_say(space: Space, selector: str, names: list[str]) -> None:
    for name in ("a", "b"):
        await space.create("topics", topic(name))
    listed = (await space.api.get(space.path("topics"), {"fieldSelector": selector})).body["items"]
    assert [item["metadata"]["name"] for item in listed] == names


@pytest.mark.parametrize("selector", ["a===b", "a in b", "a in (", "=b", "a b"])
async def test_should_refuse_what_is_no_label_selector(space: Space, selector: str) -> None:
    answer = await space.api.get(space.path("topics"), {"labelSelector": selector})
    assert (answer.status, answer.reason) == (400, "BadRequest")


async def test_should_refuse_fields_that_cannot_be_selected(space: Space) -> None:
    answer = await space.api.get(space.path("topics"), {"fieldSelector": "spec.partitions=3"})
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message == "field label not supported: spec.partitions"
