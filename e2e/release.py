"""A release of the chart as the tests see it: what Helm does with it, and what its users do in its namespace."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from e2e.lab.cluster import Cluster
from e2e.waiting import wait_for

CHECKOUT = Path(__file__).parents[1]
CHART = CHECKOUT / "charts" / "headrace"
_HELM_TIMEOUT = "5m"


@dataclass(frozen=True, slots=True)
class Release:
    cluster: Cluster
    namespace: str
    chart: Path
    images: dict[str, str]
    """Of `broker`, `operator` and `spark`, whole names."""
    values: tuple[str, ...]
    """Helm's arguments that name the images, and what the tests need otherwise."""
    pull_policy: str = "Never"
    name: str = "headrace"
    """Of the release and of the cluster of brokers."""
    helm_program: str = "helm"
    """Helm 3, or `helm4`."""

    # -- Helm

    def install(self, *more: str) -> None:
        """Until all of it is ready. What a run that broke off has left is taken over."""
        self.upgrade("--install", *more)

    def upgrade(self, *more: str) -> None:
        self._helm("upgrade", self.name, self.chart, *self._given, *more)

    def rollback(self) -> None:
        """To the revision before."""
        self.helm("rollback", self.name, "--wait", "--timeout", _HELM_TIMEOUT)

    def uninstall(self) -> None:
        """Until its pods are gone, too: a release that follows would fail to make pods of their names."""
        self.helm("uninstall", self.name, "--wait", "--cascade=foreground", "--timeout", _HELM_TIMEOUT)

    def helm(self, *arguments: str) -> str:
        return self._helm("--namespace", self.namespace, *arguments)

    def beside(self, name: str, helm_program: str = "helm") -> "Release":
        """Another one of the same images, in a namespace of its own."""
        return replace(self, name=name, namespace=name, helm_program=helm_program)

    def _helm(self, *arguments: str | Path) -> str:
        return self.cluster.helm(*arguments, helm_program=self.helm_program)

    @property
    def _given(self) -> tuple[str, ...]:
        given = ("--namespace", self.namespace, "--create-namespace", "--set", f"cluster={self.name}", *self.values)
        return (*given, "--wait", "--timeout", _HELM_TIMEOUT)

    # -- users of the namespace

    def kubectl(self, *arguments: str | Path, stdin: str = "") -> str:
        """In the release's namespace."""
        return self.cluster.kubectl("--namespace", self.namespace, *arguments, stdin=stdin)

    def get(self, *what: str) -> dict[str, Any]:
        return _json(self.kubectl("get", *what, "--output=json"))

    def apply(self, *objects: dict[str, Any]) -> None:
        self.kubectl("apply", "--filename=-", stdin=yaml.safe_dump_all(objects))

    def users(self, *arguments: str | Path, stdin: str = "") -> str:
        """kubectl where Topics and ConsumerGroups are: not in the release's namespace."""
        return self.cluster.kubectl("--namespace", "default", *arguments, stdin=stdin)

    def seen(self, *what: str) -> dict[str, Any]:
        """A Topic or a ConsumerGroup."""
        return _json(self.users("get", *what, "--output=json"))

    def execute(self, pod: str, *command: str, stdin: str = "") -> str:
        """In a pod's first container."""
        return self.kubectl("exec", "--stdin", pod, "--", *command, stdin=stdin)

    def headrace(self, *arguments: str, stdin: str = "", broker: int = 0) -> str:
        """The command, in a broker's pod."""
        return self.execute(self.pod(broker), "headrace", *arguments, stdin=stdin)

    def create_topic(self, topic: str, timeout_s: int = 60, **spec: Any) -> None:
        """Until it is Ready."""
        self.users("apply", "--filename=-", stdin=yaml.safe_dump(topic_manifest(topic, cluster=self.name, **spec)))
        self.users("wait", "--for=condition=Ready", f"topic/{topic}", f"--timeout={timeout_s}s")

    def replicas(self, topic: str) -> dict[int, list[int]]:
        """Brokers that hold each partition."""
        sets = [each["spec"] for each in self.seen("partitionsets")["items"]]
        partitions = [partition for spec in sets if spec["topic"] == topic for partition in spec["partitions"]]
        return {partition["id"]: partition["replicas"] for partition in partitions}

    def wait_in_sync(self, topic: str, timeout_s: float = 120) -> None:
        """Until every replica of every partition is in sync."""

        def all_there() -> bool:
            status = self.seen("topic", topic)["status"]
            in_sync, _, wanted = status.get("inSync", "").partition("/")
            return bool(wanted) and in_sync == wanted

        wait_for(all_there, f"all replicas of {topic} are in sync", timeout_s)

    # -- names

    def pod(self, broker: int) -> str:
        return f"{self.name}-{broker}"

    def image(self, target: str) -> str:
        return self.images[target]

    def servers(self, brokers: int) -> list[str]:
        return [f"http://{self.pod(number)}.{self.name}.{self.namespace}.svc:9701" for number in range(brokers)]

    @property
    def bootstrap(self) -> str:
        return f"http://{self.name}-bootstrap.{self.namespace}.svc:9701"


def _json(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found


def topic_manifest(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "headrace.io/v1alpha1", "kind": "Topic", "metadata": {"name": name}, "spec": spec}


def security() -> dict[str, Any]:
    """What the `restricted` Pod Security Standard asks of a container."""
    return {
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def values_of(images: Sequence[tuple[str, Any]]) -> tuple[str, ...]:
    """`--set` for each."""
    return tuple(part for name, value in images for part in ("--set", f"{name}={value}"))
