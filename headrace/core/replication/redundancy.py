"""How well a partition is kept, as its leader sees it: what people alert on. No I/O."""

from collections.abc import Mapping

from headrace.core.slotted import dataclass
from headrace.core.types import BrokerId


@dataclass(frozen=True, slots=True)
class Redundancy:
    replicas: int
    """Those that are to stay; one that is being added is missed by nobody yet."""
    in_sync: int
    needed: int
    """`minInsyncReplicas`, but no more than there are replicas."""
    lags: Mapping[BrokerId, int]
    """How many offsets each other replica lacks: everything, before it has said anything in this epoch."""

    @property
    def is_under_replicated(self) -> bool:
        return self.in_sync < self.replicas

    @property
    def is_under_min_isr(self) -> bool:
        return self.in_sync < self.needed
