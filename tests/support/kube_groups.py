"""ConsumerGroups of a cluster of real processes, as somebody with kubectl sees and changes them."""

from typing import Any

from headrace.core.resources.metadata import API_VERSION
from tests.support.cluster import Cluster, http
from tests.support.waiting import wait_for
from tests.support.world import CONSUMER_GROUPS, TOPICS

_EVENTS = "/api/v1/namespaces/default/events"


class KubeGroups:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def create(self, name: str = "billing", *, wait: bool = True, **spec: Any) -> dict[str, Any]:
        """Waits until it has a coordinator, and the operator holds it, unless told not to."""
        manifest = {"apiVersion": API_VERSION, "kind": "ConsumerGroup", "metadata": {"name": name}, "spec": spec}
        created = self.cluster.kube("POST", CONSUMER_GROUPS, manifest)
        if wait:
            self.wait_coordinator(name)
            wait_for(lambda: self.get(name)["metadata"].get("finalizers"), f"{name} is held")
        return created

    def wait_coordinator(self, name: str = "billing") -> None:
        path = f"/v1/namespaces/default/groups/{name}/offsets"

        def answers() -> bool:
            try:
                return http("GET", self.cluster.url() + path).status == 200
            except OSError:
                return False

        wait_for(answers, f"{name} has a coordinator")

    def get(self, name: str = "billing") -> dict[str, Any]:
        return self.cluster.kube("GET", f"{CONSUMER_GROUPS}/{name}")

    def all(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.cluster.kube("GET", CONSUMER_GROUPS)["items"]
        return items

    def configure(self, name: str = "billing", **spec: Any) -> None:
        self.cluster.kube("PATCH", f"{CONSUMER_GROUPS}/{name}", {"spec": spec})

    def reset(self, reset: str, to: str, *, name: str = "billing", **more: Any) -> None:
        """As a manifest that is applied: what is left out is no more."""
        before = self.get(name)["spec"].get("resetOffsets") or {}
        gone = dict.fromkeys({*before} - {"id", "to", *more})
        self.configure(name, resetOffsets={**gone, "id": reset, "to": to, **more})

    def delete(self, name: str = "billing") -> None:
        self.cluster.kube("DELETE", f"{CONSUMER_GROUPS}/{name}")

    def condition(self, kind: str, name: str = "billing") -> dict[str, Any]:
        """Empty where there is none."""
        conditions = self.get(name).get("status", {}).get("conditions", [])
        return next((each for each in conditions if each["type"] == kind), {})

    def wait_condition(self, kind: str, reason: str, name: str = "billing") -> dict[str, Any]:
        """Of the present generation."""

        def holds() -> dict[str, Any] | None:
            found, generation = self.condition(kind, name), self.get(name)["metadata"]["generation"]
            is_so = (found.get("reason"), found.get("observedGeneration")) == (reason, generation)
            return found if is_so else None

        return wait_for(holds, f"{kind} of {name} is {reason}")

    def wait_gone(self, name: str = "billing") -> None:
        wait_for(lambda: name not in [each["metadata"]["name"] for each in self.all()], f"{name} is gone")

    def events(self, name: str = "billing") -> list[str]:
        """Reasons of those about it."""
        items = self.cluster.kube("GET", _EVENTS)["items"]
        return [each["reason"] for each in items if each["involvedObject"]["name"] == name]

    def topic(self, name: str) -> dict[str, Any]:
        return self.cluster.kube("GET", f"{TOPICS}/{name}")

    def patch_topic(self, name: str, patch: dict[str, Any]) -> None:
        self.cluster.kube("PATCH", f"{TOPICS}/{name}", patch)

    def topic_condition(self, kind: str, name: str) -> dict[str, Any]:
        conditions = self.topic(name).get("status", {}).get("conditions", [])
        return next((each for each in conditions if each["type"] == kind), {})
