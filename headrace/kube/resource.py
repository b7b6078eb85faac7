"""The kinds that Headrace uses: their place in the API, and how their objects become typed values."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote

from headrace.core.resources.consumer_group import ConsumerGroup
from headrace.core.resources.kubernetes_objects import BrokerPod, BrokerSet, Secret
from headrace.core.resources.lease import BrokerLease, OperatorLease
from headrace.core.resources.metadata import GROUP, VERSION, Object
from headrace.core.resources.partition_set import PartitionSet
from headrace.core.resources.topic import Topic

T = TypeVar("T")


class ObjectKey(NamedTuple):
    """The key of one object within its kind."""

    namespace: str
    name: str

    @classmethod
    def of(cls, obj: Object) -> "ObjectKey":
        """Return the key of an object of any kind."""
        metadata = obj.get("metadata") or {}
        return cls(str(metadata.get("namespace", "")), str(metadata.get("name", "")))


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """One kind. `parse` raises InvalidResourceError (a ValueError) for an object that it cannot read."""

    group: str
    """The API group; empty for the core group."""
    version: str
    plural: str
    kind: str
    parse: Callable[[Object], T]
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
        """Return the path of one object, or of the collection; `namespace` None is all namespaces."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace is not None and self.namespaced:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part is not None]
        return "/" + "/".join(quote(part, safe="") for part in parts)


def raw_resource(group: str, version: str, plural: str, kind: str, *, namespaced: bool = True) -> "Resource[Object]":
    """Return a kind that Headrace has no type for: its objects stay as they are."""
    return Resource(group, version, plural, kind, _as_it_is, namespaced)


def _as_it_is(obj: Object) -> Object:
    return obj


TOPICS: Resource[Topic] = Resource(GROUP, VERSION, "topics", "Topic", Topic.parse)
PARTITION_SETS: Resource[PartitionSet] = Resource(GROUP, VERSION, "partitionsets", "PartitionSet", PartitionSet.parse)
CONSUMER_GROUPS: Resource[ConsumerGroup] = Resource(
    GROUP, VERSION, "consumergroups", "ConsumerGroup", ConsumerGroup.parse
)
LEASES: Resource[BrokerLease] = Resource("coordination.k8s.io", "v1", "leases", "Lease", BrokerLease.parse)
OPERATOR_LEASES: Resource[OperatorLease] = Resource("coordination.k8s.io", "v1", "leases", "Lease", OperatorLease.parse)
SECRETS: Resource[Secret] = Resource("", "v1", "secrets", "Secret", Secret.parse)
PODS: Resource[BrokerPod] = Resource("", "v1", "pods", "Pod", BrokerPod.parse)
STATEFUL_SETS: Resource[BrokerSet] = Resource("apps", "v1", "statefulsets", "StatefulSet", BrokerSet.parse)
EVENTS: Resource[Any] = raw_resource("", "v1", "events", "Event")
