"""Recovery: what it trusts, keeps and cuts.

A replica is intact only where nothing that it voted for can be missing.
"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.limits import BATCH_HEADER_BYTES
from headrace.core.log.checkpoints import LogPoint
from headrace.core.log.epochs import EpochStart, LeaderEpochs
from headrace.core.log.recovery import (
    Cut,
    DiskFacts,
    Kept,
    RecoveryReport,
    ReplicaFacts,
    ScanStart,
    SegmentFacts,
    TailScan,
    Wanted,
    scan_start,
    why_not_intact,
)
from headrace.core.records.header import BatchHeader, stamp
from headrace.core.records.raw import emptied_batch
from headrace.core.resources.topic import Durability
from headrace.core.types import Incarnation, LeaderEpoch, Offset
from tests.support.batches import batch_of, sealed

SEGMENTS = [SegmentFacts(Offset(0), 1000), SegmentFacts(Offset(10), 2000), SegmentFacts(Offset(20), 300)]


def stamped(offset: int, epoch: int = 1, *values: bytes) -> bytes:
    batch = bytearray(batch_of(*(values or (b"a", b"b"))))
    stamp(batch, Offset(offset), LeaderEpoch(epoch))
    return bytes(batch)


def scan_of(next_offset: int, epoch: int = 1) -> TailScan:
    return TailScan(Offset(next_offset), LeaderEpochs([EpochStart(LeaderEpoch(epoch), Offset(0))]))


@pytest.mark.parametrize(
    ("point", "start"),
    [
        (None, ScanStart(0, 0, Offset(0))),
        (LogPoint(Offset(25), Offset(20), 300, 7), ScanStart(2, 300, Offset(25))),
        (LogPoint(Offset(15), Offset(10), 500, 7), ScanStart(1, 500, Offset(15))),
        # Its segment is shorter than it says, or gone: what should lie there is scanned from the start.
        (LogPoint(Offset(25), Offset(20), 301, 7), ScanStart(2, 0, Offset(20))),
        (LogPoint(Offset(35), Offset(30), 0, 7), ScanStart(2, 0, Offset(20))),
    ],
)
def test_should_scan_from_the_last_place_that_is_known_to_be_good(point: LogPoint | None, start: ScanStart) -> None:
    assert scan_start(SEGMENTS, point) == start


def test_should_scan_everything_when_all_segments_lie_above_the_recovery_point() -> None:
    assert scan_start(SEGMENTS[1:], LogPoint(Offset(5), Offset(0), 64, 7)) == ScanStart(0, 0, Offset(10))


def test_should_keep_batches_that_follow_each_other() -> None:
    scan = scan_of(0)
    log = stamped(0) + stamped(2, 3, b"c")

    first = scan.judge(memoryview(log), len(log))
    assert isinstance(first, Kept)
    rest = memoryview(log)[first.header.batch_bytes :]
    assert isinstance(scan.judge(rest, len(rest)), Kept)

    assert scan.next_offset == 3
    assert scan.epochs.starts == (EpochStart(LeaderEpoch(1), Offset(0)), EpochStart(LeaderEpoch(3), Offset(2)))


def test_should_ask_for_more_when_the_window_ends_within_a_batch() -> None:
    batch = stamped(0)
    assert scan_of(0).judge(memoryview(batch)[:63], len(batch)) == Wanted(BATCH_HEADER_BYTES)
    assert scan_of(0).judge(memoryview(batch)[:64], len(batch)) == Wanted(len(batch))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (stamped(5)[:63], "63 bytes are left"),
        (stamped(5)[:-1], "torn write"),
        (bytes(4096), "stamp_checksum"),
        (stamped(6), "base_offset is 6, the log goes on at 5"),
        (stamped(5, 0), "leader_epoch falls from 1 to 0"),
        (stamped(5)[:-1] + b"\x01", "crc32c"),
    ],
)
def test_should_cut_before_a_batch_that_does_not_follow(content: bytes, reason: str) -> None:
    scan = scan_of(5)
    verdict = scan.judge(memoryview(content), len(content))
    assert isinstance(verdict, Cut)
    assert reason in verdict.reason
    assert scan.next_offset == 5


def test_should_cut_before_a_heartbeat_that_somehow_is_in_the_log() -> None:
    from headrace.core.records.raw import HEARTBEAT

    verdict = scan_of(0).judge(memoryview(HEARTBEAT), len(HEARTBEAT))
    assert verdict == Cut("a heartbeat, which no log holds")


def test_should_keep_a_batch_that_compaction_has_emptied() -> None:
    scan = scan_of(5)
    content = emptied_batch(BatchHeader.unpack(stamped(5, 3))._replace(last_offset_delta=3))
    assert scan.judge(memoryview(content), len(content)) == Kept(BatchHeader.unpack(content))
    assert (scan.next_offset, scan.epochs.latest) == (9, 3)


def test_should_cut_before_a_segment_that_does_not_follow() -> None:
    assert scan_of(5).enter_segment(Offset(5)) is None
    assert scan_of(5).enter_segment(Offset(6)) == Cut("segment 6 does not follow offset 5")


def test_should_follow_the_headers_of_batches_without_a_look_at_their_bodies() -> None:
    scan = scan_of(5)
    assert scan.follow(BatchHeader.unpack(stamped(5, 3)))
    assert (scan.next_offset, scan.epochs.latest) == (7, 3)
    assert not scan.follow(BatchHeader.unpack(stamped(8, 3)))
    assert (scan.next_offset, scan.epochs.latest) == (7, 3)


@given(st.data())
def test_should_never_keep_a_batch_with_a_flipped_bit(data: st.DataObject) -> None:
    batch = bytearray(stamped(5))
    bit = data.draw(st.integers(0, len(batch) * 8 - 1))
    batch[bit // 8] ^= 1 << bit % 8
    assert isinstance(scan_of(5).judge(memoryview(batch), len(batch)), Cut)


@given(st.binary(max_size=300))
def test_should_never_keep_bytes_that_are_no_batch(content: bytes) -> None:
    verdict = scan_of(0).judge(memoryview(content), len(content))
    assert isinstance(verdict, Cut)


def test_should_keep_what_is_sealed_again() -> None:
    # The tests above cut because of the checksums, not because their batches are wrong otherwise.
    assert isinstance(scan_of(5).judge(memoryview(sealed(stamped(5))), len(stamped(5))), Kept)


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
