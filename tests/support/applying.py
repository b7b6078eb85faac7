"""Server-side apply in contract tests: a request, whose each field is, and the status of a Topic."""

from typing import Any

from tests.support.api_server import Space
from tests.support.kubeconfig import Answer

APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
VERSION = "headrace.io/v1alpha1"
PARTITIONS: dict[str, Any] = {"f:spec": {"f:partitions": {}}}
"""Who owns nothing but the number of partitions."""


async def apply(space: Space, path: str, obj: object, manager: str, **query: str) -> Answer:
    return await space.api.request("PATCH", path, obj, content_type=APPLY, query={"fieldManager": manager, **query})


async def applied(space: Space, obj: dict[str, Any], manager: str, **query: str) -> dict[str, Any]:
    answer = await apply(space, space.path("topics", obj["metadata"]["name"]), obj, manager, **query)
    assert answer.status in (200, 201), answer.text
    return answer.body


def owned_by(obj: dict[str, Any]) -> dict[tuple[str, str, str], Any]:
    """(manager, operation, subresource) -> the fields."""
    return {
        (entry["manager"], entry["operation"], entry.get("subresource", "")): entry["fieldsV1"]
        for entry in obj["metadata"].get("managedFields", [])
    }


def condition(type_: str, status: str = "True") -> dict[str, str]:
    moment = "2026-01-01T00:00:00Z"
    return {"type": type_, "status": status, "reason": "R", "message": "m", "lastTransitionTime": moment}


def status_of(*conditions: dict[str, str]) -> dict[str, Any]:
    whole = {"apiVersion": VERSION, "kind": "Topic", "metadata": {"name": "flights"}}
    return whole | {"status": {"conditions": list(conditions)}}
