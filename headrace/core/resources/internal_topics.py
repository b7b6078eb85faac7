"""The topics in which Headrace keeps its own records: which programs may use them, and their manifests, which the
operator and brokers write in the namespace of the brokers' Leases."""

from collections.abc import Mapping
from typing import Any, Final

from headrace.core.groups.identity import OFFSETS_TOPIC
from headrace.core.limits import (
    COMMITS_PARTITIONS,
    OFFSETS_MESSAGE_BYTES,
    OFFSETS_SEGMENT_BYTES,
    STAGING_MESSAGE_BYTES,
    STAGING_PARTITIONS_EACH,
)
from headrace.core.resources.lease import CLUSTER_LABEL
from headrace.core.resources.metadata import API_VERSION
from headrace.core.resources.topic import INTERNAL_LABEL, CleanupPolicy, DeletionPolicy
from headrace.core.staging.writers import COMMITS_TOPIC, STAGING_TOPIC

STAGING_PARTITIONS = COMMITS_PARTITIONS * STAGING_PARTITIONS_EACH


INTERNAL_TOPICS: Final = frozenset((OFFSETS_TOPIC, COMMITS_TOPIC, STAGING_TOPIC))
"""The names of all of them: no pattern finds them. Brokers alone read them and delete their records ..."""
STAGED_INTO: Final = frozenset((STAGING_TOPIC,))
"""... and write them, but for these: writers stage batches there as they write to any topic."""


def internal_manifest(
    name: str, namespace: str, cluster: str, spec: Mapping[str, Any], finalizers: tuple[str, ...] = ()
) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "labels": {INTERNAL_LABEL: "true", CLUSTER_LABEL: cluster},
    }
    if finalizers:
        metadata["finalizers"] = [*finalizers]
    retained = {"cluster": cluster, "deletionPolicy": DeletionPolicy.RETAIN.value}
    return {"apiVersion": API_VERSION, "kind": "Topic", "metadata": metadata, "spec": {**retained, **spec}}


def commits_manifest(namespace: str, cluster: str, replicas: int) -> dict[str, Any]:
    spec = {
        "partitions": COMMITS_PARTITIONS,
        "replicas": replicas,
        "cleanupPolicy": CleanupPolicy.COMPACT.value,
        "maxMessageBytes": quantity(OFFSETS_MESSAGE_BYTES),
        "segment": {"bytes": quantity(OFFSETS_SEGMENT_BYTES)},
    }
    return internal_manifest(COMMITS_TOPIC, namespace, cluster, spec)


def staging_manifest(namespace: str, cluster: str, replicas: int) -> dict[str, Any]:
    """Return the manifest of a topic that is kept until a coordinator deletes it: what is committed and not yet in its
    partition never expires."""
    spec = {
        "partitions": STAGING_PARTITIONS,
        "replicas": replicas,
        "maxMessageBytes": quantity(STAGING_MESSAGE_BYTES),
        "retention": {"time": "unlimited", "bytes": "unlimited"},
    }
    return internal_manifest(STAGING_TOPIC, namespace, cluster, spec)


def quantity(size: int) -> str:
    """Return whole mebibytes, as a resource writes them."""
    return f"{size >> 20}Mi"
