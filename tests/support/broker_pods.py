"""The StatefulSet of a cluster's brokers and their Pods, as a kube-apiserver takes them; nothing runs them."""

from typing import Any

from headrace.core.resources.metadata import Object
from headrace.kube.resource import Resource, raw_resource

RAW_PODS: Resource[Object] = raw_resource("", "v1", "pods", "Pod")
RAW_STATEFUL_SETS: Resource[Object] = raw_resource("apps", "v1", "statefulsets", "StatefulSet")
_CONTAINER = {"name": "broker", "image": "headrace"}


def stateful_set(name: str, replicas: int) -> dict[str, Any]:
    """In the namespace of its own name."""
    labels = {"app.kubernetes.io/name": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": name, "labels": labels},
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [_CONTAINER]}},
        },
    }


def pod(stateful_set: str, number: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{stateful_set}-{number}",
            "namespace": stateful_set,
            "labels": {"apps.kubernetes.io/pod-index": str(number)},
        },
        "spec": {"containers": [_CONTAINER], "nodeName": "here"},
    }
