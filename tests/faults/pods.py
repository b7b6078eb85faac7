"""What a kubelet and the controller of a StatefulSet write for brokers: the set, and a Pod for each that runs."""

from typing import Any, Final

NAME: Final = "headrace"
_LABELS: Final = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/component": "broker"}
_CONTAINER: Final = {"name": "broker", "image": NAME}


def pod_name(broker: int) -> str:
    return f"{NAME}-{broker}"


def stateful_set(replicas: int) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": NAME, "namespace": "default", "labels": _LABELS},
        "spec": {
            "replicas": replicas,
            "serviceName": NAME,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": _LABELS},
            "template": {"metadata": {"labels": _LABELS}, "spec": {"containers": [_CONTAINER]}},
        },
    }


def pod(broker: int) -> dict[str, Any]:
    labels = {**_LABELS, "apps.kubernetes.io/pod-index": str(broker)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": pod_name(broker), "namespace": "default", "labels": labels},
        "spec": {"containers": [_CONTAINER], "nodeName": "here", "hostname": pod_name(broker), "subdomain": NAME},
    }


def running(address: str, started_at: str) -> dict[str, Any]:
    """The status of a Pod whose container runs."""
    conditions = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    return {
        "phase": "Running",
        "startTime": started_at,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [{"type": name, "status": "True", "lastTransitionTime": started_at} for name in conditions],
        "containerStatuses": [
            {
                **_CONTAINER,
                "imageID": "",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": started_at}},
                "lastState": {},
            }
        ],
    }
