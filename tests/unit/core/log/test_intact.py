"""A replica is intact only where nothing that it voted for can be missing."""

from dataclasses import replace

import pytest

from headrace.core.log.recovery import DiskFacts, RecoveryReport, ReplicaFacts, why_not_intact
from headrace.core.resources.topic import Durability
from headrace.core.types import Incarnation

WHOLE = RecoveryReport(
    scanned_bytes=10,
    cut_bytes=5,
    cut_reason="torn write",
    cut_below_recovery_point=False,
    cut_below_high_watermark=False,
    damaged_files=(),
    checkpoints_whole=True,
)
CRASHED = DiskFacts(Incarnation(4), Incarnation(4), stopped_cleanly=False, same_boot=False)
FSYNC = ReplicaFacts(WHOLE, Durability.FSYNC)
REPLICATED = replace(FSYNC, durability=Durability.REPLICATED)


@pytest.mark.parametrize(
    ("disk", "replica"),
    [
        (CRASHED, FSYNC),
        (replace(CRASHED, incarnation=Incarnation(5)), FSYNC),
        (replace(CRASHED, stopped_cleanly=True), REPLICATED),
        (replace(CRASHED, same_boot=True), REPLICATED),
    ],
)
def test_should_be_intact_when_nothing_can_be_missing(disk: DiskFacts, replica: ReplicaFacts) -> None:
    assert why_not_intact(disk, replica) == ""


@pytest.mark.parametrize(
    ("disk", "replica", "reason"),
    [
        (CRASHED, replace(FSYNC, recovery=None), "not on this disk"),
        (replace(CRASHED, known_incarnation=Incarnation(5)), FSYNC, "missed a life of the broker: it knows 4"),
        (CRASHED, REPLICATED, "went down without a clean stop"),
        (CRASHED, replace(FSYNC, recovery=replace(WHOLE, cut_below_recovery_point=True)), "below the recovery point"),
        (CRASHED, replace(FSYNC, recovery=replace(WHOLE, cut_below_high_watermark=True)), "committed records"),
        (
            CRASHED,
            replace(FSYNC, recovery=replace(WHOLE, checkpoints_whole=False, damaged_files=("recovery-point: gone",))),
            "cannot tell what it held (recovery-point: gone)",
        ),
    ],
)
def test_should_not_be_intact_when_something_may_be_missing(
    disk: DiskFacts, replica: ReplicaFacts, reason: str
) -> None:
    assert reason in why_not_intact(disk, replica)
