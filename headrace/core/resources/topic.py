"""Topic: the wish of a user (`crds/topics.yaml`), parsed into numbers with the resource's defaults."""

from dataclasses import dataclass, field
from enum import EnumType, StrEnum
from typing import Any, NamedTuple

from headrace.core.limits import TOPIC_PARTITIONS_MAX
from headrace.core.resources.metadata import API_VERSION, DEFAULT_CLUSTER, InvalidResourceError, Metadata, Object
from headrace.core.types import TopicName, TopicUid
from headrace.core.units import (
    UNLIMITED,
    parse_duration_ms,
    parse_limited_duration_ms,
    parse_limited_quantity_bytes,
    parse_quantity_bytes,
)

PAUSED_ANNOTATION = "headrace.io/paused"
PREFERRED_ANNOTATION = "headrace.io/preferred-leaders"
ADOPT_ANNOTATION = "headrace.io/adopt-uid"
PLACED_ANNOTATION = "headrace.io/placed"
"""The operator's own annotation: `<uid>/<Places.seen>/<Places.begun>`."""
INTERNAL_LABEL = "headrace.io/internal"
"""The label, `"true"` on topics that are Headrace's own."""
IN_USE_FINALIZER = "headrace.io/in-use"
"""The operator's own finalizer, on the internal topic: while it is there the topic is served as before, even after a
deletion."""


class Durability(StrEnum):
    FSYNC = "Fsync"
    REPLICATED = "Replicated"


class CleanupPolicy(StrEnum):
    DELETE = "Delete"
    COMPACT = "Compact"
    COMPACT_DELETE = "CompactDelete"


class TimestampType(StrEnum):
    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


class DeletionPolicy(StrEnum):
    DELETE = "Delete"
    RETAIN = "Retain"


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """The settings of a topic: durations in milliseconds, sizes in bytes, None for `unlimited`."""

    partitions: int
    cluster: str
    replicas: int
    min_insync_replicas: int
    """The effective number: `max(1, replicas - 1)` where the resource has none."""
    durability: Durability
    cleanup_policy: CleanupPolicy
    retention_ms: int | None
    retention_bytes: int | None
    segment_bytes: int
    segment_ms: int
    min_compaction_lag_ms: int
    delete_retention_ms: int
    max_message_bytes: int
    timestamp_type: TimestampType
    timestamps_before_max_ms: int | None
    """The age by the leader's clock up to which a record is taken."""
    timestamps_after_max_ms: int | None
    """The time ahead of that clock up to which a record is taken."""
    unclean_leader_election: bool
    deletion_policy: DeletionPolicy

    @classmethod
    def parse(cls, spec: Object) -> "TopicSpec":
        """Read `spec`, with the CRD's defaults for absent fields. Raises InvalidResourceError naming the field."""
        read = _Reader(spec)
        replicas = read.integer("replicas", 3)
        return cls(
            partitions=read.integer("partitions", None),
            cluster=str(spec.get("cluster", DEFAULT_CLUSTER)),
            replicas=replicas,
            min_insync_replicas=read.integer("minInsyncReplicas", max(1, replicas - 1)),
            durability=read.parsed("durability", "Fsync", Durability),
            cleanup_policy=read.parsed("cleanupPolicy", "Delete", CleanupPolicy),
            retention_ms=read.parsed("retention.time", "7d", parse_limited_duration_ms),
            retention_bytes=read.parsed("retention.bytes", "unlimited", parse_limited_quantity_bytes),
            segment_bytes=read.parsed("segment.bytes", "256Mi", parse_quantity_bytes),
            segment_ms=read.parsed("segment.time", "1d", parse_duration_ms),
            min_compaction_lag_ms=read.parsed("compaction.minLag", "0s", parse_duration_ms),
            delete_retention_ms=read.parsed("compaction.deleteRetention", "1d", parse_duration_ms),
            max_message_bytes=read.parsed("maxMessageBytes", "8Mi", parse_quantity_bytes),
            timestamp_type=read.parsed("timestampType", "CreateTime", TimestampType),
            timestamps_before_max_ms=read.parsed("timestamps.beforeMax", UNLIMITED, parse_limited_duration_ms),
            timestamps_after_max_ms=read.parsed("timestamps.afterMax", UNLIMITED, parse_limited_duration_ms),
            unclean_leader_election=bool(spec.get("uncleanLeaderElection", False)),
            deletion_policy=read.parsed("deletionPolicy", "Delete", DeletionPolicy),
        )

    def to_object(self) -> dict[str, Any]:
        """Return the spec as a resource spells it, every default written out: `parse` gives the same back."""
        return {
            "partitions": self.partitions,
            "cluster": self.cluster,
            "replicas": self.replicas,
            "minInsyncReplicas": self.min_insync_replicas,
            "durability": self.durability.value,
            "cleanupPolicy": self.cleanup_policy.value,
            "retention": {
                "time": _limit(self.retention_ms),
                "bytes": UNLIMITED if self.retention_bytes is None else str(self.retention_bytes),
            },
            "segment": {"bytes": str(self.segment_bytes), "time": f"{self.segment_ms}ms"},
            "compaction": {
                "minLag": f"{self.min_compaction_lag_ms}ms",
                "deleteRetention": f"{self.delete_retention_ms}ms",
            },
            "maxMessageBytes": str(self.max_message_bytes),
            "timestampType": self.timestamp_type.value,
            "timestamps": {
                "beforeMax": _limit(self.timestamps_before_max_ms),
                "afterMax": _limit(self.timestamps_after_max_ms),
            },
            "uncleanLeaderElection": self.unclean_leader_election,
            "deletionPolicy": self.deletion_policy.value,
        }


def _limit(duration_ms: int | None) -> str:
    return UNLIMITED if duration_ms is None else f"{duration_ms}ms"


class Places(NamedTuple):
    """The number of a topic's partitions, from 0, that have had places at some time: the others are new."""

    seen: int = 0
    """The number that have had places for sure ..."""
    begun: int = 0
    """... and the number that may have: an operator that began to place them may have died first."""


@dataclass(frozen=True, slots=True)
class Topic:
    metadata: Metadata
    spec: TopicSpec
    status: dict[str, Any] = field(default_factory=dict)
    """The status as it was read; compared with what the operator would write. Only `reclaiming.noted_or_told` decides
    by it."""

    @property
    def full_name(self) -> TopicName:
        return TopicName(self.metadata.namespace, self.metadata.name)

    @property
    def uid(self) -> TopicUid:
        return TopicUid(self.metadata.uid)

    @property
    def is_going(self) -> bool:
        """Return whether it is being deleted: one in use stays until it is not."""
        return self.metadata.deletion_timestamp is not None and IN_USE_FINALIZER not in self.metadata.finalizers

    @property
    def paused(self) -> bool:
        """Return whether people ask for a pause, in whatever case they write it: YAML takes `True` for true."""
        return self._pause_asked.lower() == "true"

    @property
    def invalid_pause(self) -> str | None:
        """Return the annotation's value where that is neither true nor false; then the topic is not paused."""
        return None if self._pause_asked.lower() in ("true", "false") else self._pause_asked

    @property
    def _pause_asked(self) -> str:
        return self.metadata.annotations.get(PAUSED_ANNOTATION, "false").strip()

    @property
    def adopts(self) -> str:
        """Return the uid of the topic whose data this one claims; empty where it claims none."""
        return self.metadata.annotations.get(ADOPT_ANNOTATION, "")

    @property
    def places(self) -> Places:
        """Return the places; None where the annotation came with a copy of another topic; all of them where it cannot
        be read."""
        uid, _, counts = self.metadata.annotations.get(PLACED_ANNOTATION, "").partition("/")
        if uid != self.uid:
            return Places()
        seen, _, begun = counts.partition("/")
        if not (seen.isascii() and seen.isdecimal() and begun.isascii() and begun.isdecimal()):
            return Places(TOPIC_PARTITIONS_MAX, TOPIC_PARTITIONS_MAX)
        return Places(int(seen), int(begun))

    def noted(self, places: Places) -> dict[str, str]:
        """Return the annotation for these places."""
        return {PLACED_ANNOTATION: f"{self.uid}/{places.seen}/{places.begun}"}

    @classmethod
    def parse(cls, obj: Object) -> "Topic":
        """Parse an object. Raises InvalidResourceError where it is not a Topic."""
        if not isinstance(obj.get("spec"), dict):
            raise InvalidResourceError("spec is missing")
        return cls(Metadata.parse(obj), TopicSpec.parse(obj["spec"]), dict(obj.get("status") or {}))


def topic_manifest(name: str, namespace: str, spec: Object) -> dict[str, Any]:
    """Return the manifest that creates a Topic with this `spec` (spelled as in the resource)."""
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": API_VERSION, "kind": "Topic", "metadata": metadata, "spec": dict(spec)}


class _Reader:
    def __init__(self, spec: Object) -> None:
        self._spec = spec

    def integer(self, path: str, default: int | None) -> int:
        value = self._value(path, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidResourceError(f"spec.{path}: {value!r} is not a whole number")
        return value

    def parsed(self, path: str, default: str, parse: Any) -> Any:
        value = self._value(path, default)
        try:
            return parse(str(value))
        except ValueError as error:
            if isinstance(parse, EnumType):
                raise InvalidResourceError(f"spec.{path}: {value!r} is none of {', '.join(parse)}") from error
            raise InvalidResourceError(f"spec.{path}: {error}") from error

    def _value(self, path: str, default: object) -> object:
        found: Any = self._spec
        for part in path.split("."):
            if not isinstance(found, dict) or part not in found:
                return default
            found = found[part]
        return found
