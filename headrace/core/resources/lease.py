"""A broker's Lease: its address and its sign of life (`coordination.k8s.io/v1`, named `headrace-broker-<id>`).

The Lease is a failure detector and a directory of addresses, nothing more: safety comes from epochs. Whoever reads it
judges by their own monotonic clock since they last saw it change; the timestamps in it are for people.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from headrace.core.limits import LEASE_DURATION_MS, LEASE_REGRESSED_MAX
from headrace.core.resources.metadata import InvalidResourceError, Metadata, Object
from headrace.core.types import BrokerId, Incarnation, TopicUid

LEASE_PREFIX = "headrace-broker-"
CLUSTER_LABEL = "headrace.io/cluster"
_URL, _ZONE, _DRAINING, _CLEAN, _FULL, _REGRESSED, _PEER_KEY = (
    f"headrace.io/{name}" for name in ("url", "zone", "draining", "clean", "full", "regressed", "peer-key")
)
_OPTIONAL = (_FULL, _REGRESSED, _PEER_KEY)


@dataclass(frozen=True, slots=True)
class BrokerLease:
    metadata: Metadata
    broker: BrokerId
    incarnation: Incarnation
    """0 where nobody holds it."""
    url: str
    zone: str = ""
    draining: bool = False
    clean: bool = False
    """The holder stopped cleanly: everything it held was on disk."""
    renew_time: str = ""
    """RFC 3339 with microseconds, as MicroTime. For people and as a sign of change; never compared with a clock."""
    full: bool = False
    """There is no room for records on its disk: whoever leads does not take it into an ISR."""
    regressed: frozenset[TopicUid] = frozenset()
    """Topics whose epochs in the API are below what this broker has seen: nobody is elected for them. Where they are
    too many to be named, the first LEASE_REGRESSED_MAX."""
    peer_key: str = field(default="", repr=False)
    """A random word of its process: who brings it may read Leases, as brokers may, and clients may not."""

    @property
    def cluster(self) -> str:
        return self.metadata.labels.get(CLUSTER_LABEL, "")

    def renewed(self, now: str) -> "BrokerLease":
        return replace(self, renew_time=now)

    @classmethod
    def parse(cls, obj: Object) -> "BrokerLease":
        """Raises InvalidResourceError for a Lease that is not a broker's."""
        metadata = Metadata.parse(obj)
        broker = broker_of(metadata.name)
        if broker is None:
            raise InvalidResourceError(f"Lease {metadata.name} is not a broker's: its name must be {LEASE_PREFIX}<id>")
        spec = obj.get("spec") or {}
        holder = str(spec.get("holderIdentity") or "0")
        if not holder.isdecimal():
            raise InvalidResourceError(f"Lease {metadata.name}: holderIdentity {holder!r} is not an incarnation")
        notes = metadata.annotations
        return cls(
            metadata=metadata,
            broker=broker,
            incarnation=Incarnation(int(holder)),
            url=notes.get(_URL, ""),
            zone=notes.get(_ZONE, ""),
            draining=notes.get(_DRAINING) == "true",
            clean=notes.get(_CLEAN) == "true",
            renew_time=str(spec.get("renewTime") or ""),
            full=notes.get(_FULL) == "true",
            regressed=frozenset(TopicUid(uid) for uid in notes.get(_REGRESSED, "").split(",") if uid),
            peer_key=notes.get(_PEER_KEY, ""),
        )

    def to_object(self) -> dict[str, Any]:
        metadata = self.metadata.to_object()
        metadata["annotations"] = {
            **{name: note for name, note in self.metadata.annotations.items() if name not in _OPTIONAL},
            _URL: self.url,
            _ZONE: self.zone,
            _DRAINING: str(self.draining).lower(),
            _CLEAN: str(self.clean).lower(),
            **self._more(),
        }
        spec: dict[str, Any] = {
            "holderIdentity": str(self.incarnation),
            "leaseDurationSeconds": LEASE_DURATION_MS // 1000,
        }
        if self.renew_time:
            spec["renewTime"] = self.renew_time
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}

    def _more(self) -> dict[str, str]:
        """Only where there is any."""
        regressed = ",".join(sorted(self.regressed)[:LEASE_REGRESSED_MAX])
        notes = {_FULL: "true" if self.full else "", _REGRESSED: regressed, _PEER_KEY: self.peer_key}
        return {name: note for name, note in notes.items() if note}


def broker_of(name: str) -> BrokerId | None:
    """Whose Lease has that name; None where it is no broker's."""
    ordinal = name.removeprefix(LEASE_PREFIX)
    return BrokerId(int(ordinal)) if ordinal != name and ordinal.isdecimal() else None


def lease_name(broker: BrokerId) -> str:
    return f"{LEASE_PREFIX}{broker}"
