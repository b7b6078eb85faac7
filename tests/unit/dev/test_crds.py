"""Our own CRDs, as people meet them in `kubectl explain`."""

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.dev.crds import load_crds

_OF_KUBERNETES = {"apiVersion", "kind", "metadata"}


def _fields(node: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every field below `node`; a list says itself what is in it, so only the fields of its elements count."""
    for name, child in node.get("properties", {}).items():
        if path or name not in _OF_KUBERNETES:
            yield f"{path}.{name}", child
            yield from _fields(child, f"{path}.{name}")
    if "items" in node:
        yield from _fields(node["items"], f"{path}[]")


@pytest.fixture(params=load_crds(), ids=lambda definition: str(definition["spec"]["names"]["kind"]))
def schema(request: pytest.FixtureRequest) -> dict[str, Any]:
    (version,) = request.param["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return found


def test_should_describe_every_field(schema: dict[str, Any]) -> None:
    assert schema["description"]
    assert [path for path, field in _fields(schema, "") if not field.get("description")] == []


def test_should_name_the_default_which_kubectl_explain_does_not_show(schema: dict[str, Any]) -> None:
    for path, field in _fields(schema, ""):
        default = field.get("default")
        if isinstance(default, str | int):
            shown = str(default).lower() if isinstance(default, bool) else default
            assert field["description"].endswith(f" Default: {shown}."), path
