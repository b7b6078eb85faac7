"""Is a replica's log intact: does it still hold everything that its broker voted for? (design section 6)

Only a replica with an intact log renews its seat in the ISR after a restart. A replica that votes with less than it
once confirmed can lose acknowledged records, so whatever is not known counts as lost. Called once per partition and
start by the broker, with facts that `headrace_broker.storage` reports; what earlier starts found is told by
`void-before`, and judged with each seat that a state names (`headrace.core.replication.seats`).
"""

from headrace.core.log.recovery import RecoveryReport
from headrace.core.resources.topic import Durability
from headrace.core.slotted import dataclass
from headrace.core.types import Incarnation


@dataclass(frozen=True, slots=True)
class DiskFacts:
    """Of the data directory, as it was found at this start."""

    incarnation: Incarnation
    """The last life of the broker that this disk knows of; 0 for an empty disk."""
    known_incarnation: Incarnation
    """The greatest life of the broker that its Lease and the PartitionSets know of."""
    stopped_cleanly: bool
    same_boot: bool
    """The kernel has not restarted since the last life: what was in its page cache still is."""


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    """Of one partition's directory."""

    recovery: RecoveryReport | None
    """None where there is no directory."""
    durability: Durability


def why_not_intact(disk: DiskFacts, replica: ReplicaFacts) -> str:
    """What this start found: the first reason, as part of a sentence for people; empty where the log is intact."""
    recovery = replica.recovery
    if recovery is None:
        return "its directory is not on this disk"
    if disk.known_incarnation > disk.incarnation:
        return f"this disk missed a life of the broker: it knows {disk.incarnation}, there was {disk.known_incarnation}"
    return _what_recovery_lost(recovery) or _what_a_crash_may_lose(disk, replica.durability)


def _what_recovery_lost(recovery: RecoveryReport) -> str:
    if not recovery.checkpoints_whole:
        return f"its checkpoints cannot tell what it held ({'; '.join(recovery.damaged_files)})"
    if recovery.cut_below_recovery_point:
        return f"records below the recovery point are damaged ({recovery.cut_reason})"
    if recovery.cut_below_high_watermark:
        return f"committed records are damaged ({recovery.cut_reason})"
    return ""


def _what_a_crash_may_lose(disk: DiskFacts, durability: Durability) -> str:
    if durability is Durability.FSYNC or disk.stopped_cleanly or disk.same_boot:
        return ""
    return "the machine went down without a clean stop, and durability Replicated leaves the last records in memory"
