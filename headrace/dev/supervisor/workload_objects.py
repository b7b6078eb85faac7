"""The StatefulSet, the Pods and the bootstrap Service as they are sent to the API.

`kubectl get`, `describe` and `rollout status` see what they see on a cluster.
"""

from typing import Any

from headrace.core.limits import (
    CATCH_UP_TIMEOUT_MS,
    DECOMMISSION_TIMEOUT_MS,
    DRAIN_TIMEOUT_MS,
    HANDOVER_TIMEOUT_MS,
    STEP_DOWN_TIMEOUT_MS,
)
from headrace.core.resources.metadata import DEFAULT_CLUSTER
from headrace.core.resources.service import BOOTSTRAP_PORT, BOOTSTRAP_PORT_NAME, bootstrap_service
from headrace.dev.supervisor.pod_status import IMAGE
from headrace.dev.supervisor.workload import NAME, NAMESPACE, REVISION_LABEL, CreatePod, SetStatus, pod_name

STOP_GRACE_S = (HANDOVER_TIMEOUT_MS + STEP_DOWN_TIMEOUT_MS + DRAIN_TIMEOUT_MS) // 1000 + 5
"""A little more than the longest that a broker takes to stop where all do: then nobody stays for another ..."""
LEAVING_GRACE_S = STOP_GRACE_S + max(DECOMMISSION_TIMEOUT_MS, CATCH_UP_TIMEOUT_MS) // 1000
"""... and where it stops alone: it hands its replicas over first, or stays in sync for those that catch up. Copies take
as long as there are bytes."""
LABELS = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/component": "broker"}
SELECTOR = ",".join(f"{key}={value}" for key, value in LABELS.items())


def stateful_set_object(replicas: int) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": LABELS},
        "spec": {
            "replicas": replicas,
            "serviceName": NAME,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": {"containers": [_container(BOOTSTRAP_PORT)]}},
        },
    }


def service_object() -> dict[str, Any]:
    """Its port by name is another number in every Pod: all brokers share one machine's ports."""
    port = {"name": BOOTSTRAP_PORT_NAME, "port": BOOTSTRAP_PORT, "targetPort": BOOTSTRAP_PORT_NAME}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": bootstrap_service(DEFAULT_CLUSTER), "namespace": NAMESPACE, "labels": LABELS},
        "spec": {"clusterIP": "None", "selector": LABELS, "ports": [port]},
    }


def stateful_set_status(status: SetStatus) -> dict[str, Any]:
    return {
        "observedGeneration": status.generation,
        "replicas": status.replicas,
        "readyReplicas": status.ready,
        "availableReplicas": status.ready,
        "currentReplicas": status.current,
        "updatedReplicas": status.updated,
        "currentRevision": status.current_revision,
        "updateRevision": status.update_revision,
    }


def pod_object(pod: CreatePod, node: str) -> dict[str, Any]:
    """`node` is the machine's name: all brokers are processes of this one."""
    name, owner_uid = pod_name(pod.broker), pod.owner_uid
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": NAME, "uid": owner_uid, "controller": True}
    labels = {
        **LABELS,
        "statefulset.kubernetes.io/pod-name": name,
        "apps.kubernetes.io/pod-index": str(pod.broker),
        REVISION_LABEL: pod.revision,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": labels,
            "ownerReferences": [owner],
        },
        "spec": {
            "containers": [_container(pod.port)],
            "nodeName": node,
            "hostname": name,
            "subdomain": NAME,
            "terminationGracePeriodSeconds": LEAVING_GRACE_S,
        },
    }


def _container(port: int) -> dict[str, Any]:
    return {"name": "broker", "image": IMAGE, "ports": [{"name": BOOTSTRAP_PORT_NAME, "containerPort": port}]}
