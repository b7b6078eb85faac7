"""How much `make bench` does, and how much less with `--short`."""

from dataclasses import dataclass

from bench.groups import GroupAmounts
from bench.replication import Amounts


@dataclass(frozen=True, slots=True)
class Size:
    """How much one round moves."""

    raw_batches: int
    sdk_records: int
    single_records: int
    latency_records: int
    tail_rounds: int
    """Of all rounds together: they are short, and many."""
    tail_s: float
    log_bytes: tuple[int, ...]
    """Of the logs whose costs are compared."""
    requests: int
    """Of each kind, to each of those logs."""
    starts: int
    behind_bytes: int
    behind_rounds: int
    behind_s: float
    replication: Amounts
    kills: int
    silences: int
    """Of leaders that are stopped for longer than their Lease lasts."""
    partitions: int
    rest_s: float
    groups: GroupAmounts


FULL = Size(
    raw_batches=256,
    sdk_records=1_000_000,
    single_records=100_000,
    latency_records=500,
    tail_rounds=9,
    tail_s=2.0,
    log_bytes=(10 * 10**6, 10**9, 10**10),
    requests=500,
    starts=5,
    behind_bytes=10 << 30,
    behind_rounds=7,
    behind_s=4.0,
    replication=Amounts(sdk_records=1_000_000, raw_batches=128, latency_records=300),
    kills=9,
    silences=3,
    partitions=1_000,
    rest_s=20.0,
    groups=GroupAmounts(joins=5, moves=3, groups=64, quiet_s=11.0, commit_s=15.0, alone=500),
)
SHORT = Size(
    raw_batches=48,
    sdk_records=200_000,
    single_records=20_000,
    latency_records=200,
    tail_rounds=3,
    tail_s=1.0,
    log_bytes=(10 * 10**6, 2 * 10**8),
    requests=100,
    starts=3,
    behind_bytes=1 << 30,
    behind_rounds=3,
    behind_s=1.0,
    replication=Amounts(sdk_records=200_000, raw_batches=32, latency_records=100),
    kills=2,
    silences=1,
    partitions=200,
    rest_s=5.0,
    groups=GroupAmounts(joins=1, moves=1, groups=32, quiet_s=1.0, commit_s=1.5, alone=100),
)
