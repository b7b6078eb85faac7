"""Our own CRDs, as people meet them in `kubectl explain`."""

from collections.abc import Iterator, Mapping
from typing import Any

from headrace.dev.crds import load_crds

_OF_KUBERNETES = {"apiVersion", "kind", "metadata"}


def _undescribed(node: Mapping[str, Any], path: str) -> Iterator[str]:
    """A list says itself what is in it; elements with fields of their own describe those."""
    for name, child in node.get("properties", {}).items():
        if not child.get("description"):
            yield f"{path}.{name}"
        yield from _undescribed(child, f"{path}.{name}")
    if "items" in node:
        yield from _undescribed(node["items"], f"{path}[]")


def test_should_describe_every_field() -> None:
    missing = []
    for definition in load_crds():
        for version in definition["spec"]["versions"]:
            schema = version["schema"]["openAPIV3Schema"]
            described = {name: node for name, node in schema["properties"].items() if name not in _OF_KUBERNETES}
            assert schema["description"]
            missing += list(_undescribed(schema | {"properties": described}, definition["spec"]["names"]["kind"]))
    assert missing == []
