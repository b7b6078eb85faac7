"""Where a contract test works: an API server, and a namespace in it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.kubeconfig import ApiClient


@dataclass(frozen=True, slots=True)
class ApiServer:
    kubeconfig: Path
    embedded: bool


@dataclass(frozen=True, slots=True)
class Space:
    """A test's own namespace, and the paths in it."""

    api: ApiClient
    name: str

    def path(self, plural: str, name: str = "", subresource: str = "") -> str:
        group = {
            "pods": "/api/v1",
            "events": "/api/v1",
            "secrets": "/api/v1",
            "services": "/api/v1",
            "statefulsets": "/apis/apps/v1",
            "leases": "/apis/coordination.k8s.io/v1",
        }.get(plural, "/apis/headrace.io/v1alpha1")
        below = "".join(f"/{part}" for part in (name, subresource) if part)
        return f"{group}/namespaces/{self.name}/{plural}{below}"

    async def create(self, plural: str, obj: dict[str, Any]) -> dict[str, Any]:
        answer = await self.api.request("POST", self.path(plural), obj)
        assert answer.status == 201, answer.text
        return answer.body

    async def read(self, plural: str, name: str) -> dict[str, Any]:
        answer = await self.api.get(self.path(plural, name))
        assert answer.status == 200, answer.text
        return answer.body
