"""The topics in which Headrace keeps its own records: which programs may use them, and their manifests, which the
operator and brokers write in the namespace of the brokers' Leases."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from headrace.core.errors import InternalTopicError
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
from headrace.core.types import TopicName

STAGING_PARTITIONS = COMMITS_PARTITIONS * STAGING_PARTITIONS_EACH


INTERNAL_TOPICS: Final = frozenset((OFFSETS_TOPIC, COMMITS_TOPIC, STAGING_TOPIC))
"""The names of all of them: no pattern finds them. Brokers alone read them and delete their records ..."""
STAGED_INTO: Final = frozenset((STAGING_TOPIC,))
"""... and write them, but for these: writers stage batches there as they write to any topic."""


@dataclass(frozen=True, slots=True)
class InternalTopics:
    """The internal topics of one cluster: who may read and write them. Each check raises InternalTopicError."""

    namespace: str
    """The namespace of the brokers' Leases."""

    def check_writable(self, name: TopicName, *, stages: bool = False) -> None:
        """Check that clients may write records to the topic. `stages`: they write whole batches to one partition."""
        if name in self and not (stages and name.name in STAGED_INTO):
            raise self._refusal(name, "written")

    def check_readable(self, name: TopicName, *, by_broker: bool = False) -> None:
        if name in self and not by_broker:
            raise self._refusal(name, "read")

    def check_deletable(self, name: TopicName, *, by_broker: bool = False) -> None:
        """Check that records of the topic may be deleted."""
        if name in self and not by_broker:
            raise self._refusal(name, "deleted from")

    def __contains__(self, name: TopicName) -> bool:
        return name.namespace == self.namespace and name.name in INTERNAL_TOPICS

    def _refusal(self, name: TopicName, what: str) -> InternalTopicError:
        kind, path = ("consumer groups", "groups") if name.name == OFFSETS_TOPIC else ("writers", "writers")
        return InternalTopicError(
            f"{name} is where coordinators keep what is theirs, and is {what} by brokers alone: ask about {kind}"
            f" (/v1/namespaces/{{namespace}}/{path}/...)"
        )


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
