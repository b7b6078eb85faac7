"""The Lease by which one of several operators of a cluster acts (`coordination.k8s.io/v1`, named `<cluster>-operator`).

As with a broker's Lease its timestamps are for people: whoever reads it judges by their own monotonic clock since they
last saw it change. It does not carry the cluster's label: that is for the Leases of brokers.
"""

from dataclasses import replace
from typing import Any

from headrace.core.limits import OPERATOR_LEASE_DURATION_MS
from headrace.core.resources.metadata import Metadata, Object
from headrace.core.slotted import dataclass


@dataclass(frozen=True, slots=True)
class OperatorLease:
    metadata: Metadata
    holder: str = ""
    """The identity of an operator process; empty where nobody holds it."""
    renew_time: str = ""
    acquire_time: str = ""
    transitions: int = 0
    """How often it went to another holder."""

    def held_by(self, holder: str, now: str) -> "OperatorLease":
        """As `holder` writes it; `now` is RFC 3339 with microseconds."""
        if holder == self.holder:
            return replace(self, renew_time=now)
        return replace(
            self,
            holder=holder,
            renew_time=now,
            acquire_time=now,
            transitions=self.transitions + bool(self.acquire_time),
        )

    def vacated(self) -> "OperatorLease":
        return replace(self, holder="")

    @classmethod
    def parse(cls, obj: Object) -> "OperatorLease":
        spec = obj.get("spec") or {}
        return cls(
            metadata=Metadata.parse(obj),
            holder=str(spec.get("holderIdentity") or ""),
            renew_time=str(spec.get("renewTime") or ""),
            acquire_time=str(spec.get("acquireTime") or ""),
            transitions=int(spec.get("leaseTransitions") or 0),
        )

    def to_object(self) -> dict[str, Any]:
        spec = {
            "holderIdentity": self.holder,
            "leaseDurationSeconds": OPERATOR_LEASE_DURATION_MS // 1000,
            "acquireTime": self.acquire_time,
            "renewTime": self.renew_time,
            "leaseTransitions": self.transitions,
        }
        metadata = self.metadata.to_object()
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def operator_lease_name(cluster: str) -> str:
    return f"{cluster}-operator"
