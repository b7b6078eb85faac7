"""The metadata that every Kubernetes object carries, the parsing that all resources share, and the types of conditions.

`ConditionType` lists what Headrace writes into the status of its resources; `control.conditions` makes them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

Object: TypeAlias = Mapping[str, Any]
"""A Kubernetes object as it crosses HTTP: JSON values only."""

GROUP = "headrace.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
DEFAULT_CLUSTER = "headrace"


class InvalidResourceError(ValueError):
    """An object that the API server should have refused: a field is missing or has the wrong form."""


@dataclass(frozen=True, slots=True)
class OwnerReference:
    api_version: str
    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Metadata:
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    deletion_timestamp: str | None = None
    creation_timestamp: str | None = None
    finalizers: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    owners: tuple[OwnerReference, ...] = ()

    @classmethod
    def parse(cls, obj: Object) -> "Metadata":
        """Read `metadata` of any object. Raises InvalidResourceError without a name."""
        raw = obj.get("metadata") or {}
        if "name" not in raw:
            raise InvalidResourceError("metadata.name is missing")
        return cls(
            name=raw["name"],
            namespace=raw.get("namespace", ""),
            uid=raw.get("uid", ""),
            resource_version=raw.get("resourceVersion", ""),
            generation=raw.get("generation", 0),
            deletion_timestamp=raw.get("deletionTimestamp"),
            creation_timestamp=raw.get("creationTimestamp"),
            finalizers=tuple(raw.get("finalizers") or ()),
            labels=raw.get("labels") or {},
            annotations=raw.get("annotations") or {},
            owners=tuple(
                OwnerReference(o["apiVersion"], o["kind"], o["name"], o["uid"])
                for o in raw.get("ownerReferences") or ()
            ),
        )

    def to_object(self) -> dict[str, Any]:
        """Return the metadata as it is sent: what the server sets by itself (generation, creation time) is left out."""
        raw: dict[str, Any] = {"name": self.name}
        optional: dict[str, Any] = {
            "namespace": self.namespace,
            "uid": self.uid,
            "resourceVersion": self.resource_version,
            "finalizers": list(self.finalizers),
            "labels": dict(self.labels),
            "annotations": dict(self.annotations),
            "ownerReferences": [
                {"apiVersion": o.api_version, "kind": o.kind, "name": o.name, "uid": o.uid, "controller": True}
                for o in self.owners
            ],
        }
        raw.update({name: value for name, value in optional.items() if value})
        return raw


class ConditionType(StrEnum):
    READY = "Ready"
    UNDER_REPLICATED = "UnderReplicated"
    OFFLINE = "Offline"
    REASSIGNING = "Reassigning"
    PAUSED = "Paused"
    PREFERRED_LEADERS = "PreferredLeaders"
    """The condition that is True while all that the annotation asks for can be done; it is there only where the
    annotation is."""
    IN_USE = "InUse"
    """A condition of the internal topic."""
    OFFSETS_RESET = "OffsetsReset"
    """A condition of a ConsumerGroup whose `spec.resetOffsets` is to be carried out."""
