"""Objects for tests of an API server: the smallest of each kind that is accepted."""

from typing import Any

GROUP_VERSION = "headrace.io/v1alpha1"


def topic(name: str = "flights", *, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return _custom("Topic", name, {"partitions": 3, **spec}, labels)


def partition_set(name: str = "flights-0", **spec: Any) -> dict[str, Any]:
    return _custom("PartitionSet", name, {"topic": "flights", "topicUid": "u", "partitions": [], **spec}, None)


def consumer_group(name: str = "billing", **spec: Any) -> dict[str, Any]:
    return _custom("ConsumerGroup", name, spec, None)


def lease(name: str = "headrace-broker-0", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}


def pod(name: str = "headrace-0", **spec: Any) -> dict[str, Any]:
    containers = [{"name": "broker", "image": "headrace"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers, **spec}}


def stateful_set(name: str = "headrace", **spec: Any) -> dict[str, Any]:
    labels = {"app": "headrace"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "broker", "image": "headrace"}]}}
    full = {"serviceName": "headrace", "selector": {"matchLabels": labels}, "template": template, **spec}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name}, "spec": full}


def secret(name: str = "tls", **members: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, **members}


def service(name: str = "web", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def event(namespace: str, name: str = "", **members: Any) -> dict[str, Any]:
    about = {"kind": "Topic", "name": "flights", "namespace": namespace, "uid": "u"}
    meta = {"name": name} if name else {"generateName": "flights-"}
    return {"apiVersion": "v1", "kind": "Event", "metadata": meta, "involvedObject": about, **members}


def _custom(kind: str, name: str, spec: dict[str, Any], labels: dict[str, str] | None) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": name}
    if labels:
        meta["labels"] = labels
    return {"apiVersion": GROUP_VERSION, "kind": kind, "metadata": meta, "spec": spec}
