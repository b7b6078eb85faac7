"""The API server: one PartitionSet under compare-and-set, and the brokers' Leases."""

from dataclasses import dataclass, field, replace

from headrace.core.resources.lease import BrokerLease, lease_name
from headrace.core.resources.metadata import Metadata
from headrace.core.resources.partition_set import PartitionSet, PartitionState
from headrace.core.types import BrokerId, Incarnation, PartitionId
from tests.sim.checks import Checks


@dataclass
class Api:
    history: list[PartitionSet]
    """Every version, the present one last; a watch is an index in it."""
    checks: Checks
    leases: dict[BrokerId, BrokerLease] = field(default_factory=dict)
    renewals: int = 0

    @property
    def stored(self) -> PartitionSet:
        return self.history[-1]

    @property
    def state(self) -> PartitionState:
        return self.stored.partitions[PartitionId(0)]

    def put(self, written: PartitionSet) -> PartitionSet | None:
        """Put a set; return None for a conflict."""
        if written.metadata.resource_version != self.stored.metadata.resource_version:
            return None
        version = str(int(self.stored.metadata.resource_version) + 1)
        self.history.append(replace(written, metadata=replace(written.metadata, resource_version=version)))
        self.checks.landed(self.state, written.metadata.resource_version)
        return self.stored

    def get(self) -> PartitionSet:
        """Return the set without resourceVersion: as it is, whatever caches hold."""
        return self.stored

    def show(self, old: PartitionSet) -> None:
        """Show old data from now on, as after a restore. Versions go on; that of the old data is not used again."""
        version = str(int(self.stored.metadata.resource_version) + 1)
        self.history.append(replace(old, metadata=replace(old.metadata, resource_version=version)))

    def take_lease(self, broker: BrokerId, incarnation: Incarnation) -> BrokerLease:
        lease = BrokerLease(Metadata(lease_name(broker)), broker, incarnation, "")
        return self.renew(lease)

    def renew(self, lease: BrokerLease) -> BrokerLease:
        self.renewals += 1
        renewed = self.leases[lease.broker] = lease.renewed(str(self.renewals))
        return renewed
