"""How much may be appended: up to the quota, down to the reserve, and again once there is room to spare."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import DiskFullError
from headrace.core.log.disk_quota import DISK_RESERVE_BYTES_MAX, DiskBudget, DiskLimits

QUOTA = 6_400
"""100 of it are room to spare."""
VOLUME = 640_000
GIB = 1 << 30


def budget(*, quota_bytes: int | None = QUOTA, reserve_bytes: int | None = 0) -> DiskBudget:
    made = DiskBudget(DiskLimits(quota_bytes, reserve_bytes))
    made.measured_volume(VOLUME, VOLUME, 0)
    made.counted_data(0, 0)
    return made


def refusal(budget: DiskBudget, size: int) -> DiskFullError:
    with pytest.raises(DiskFullError) as refused:
        budget.take(size)
    return refused.value


def test_should_take_all_there_is_before_it_has_looked() -> None:
    DiskBudget(DiskLimits(1, 1)).take(1 << 40)


def test_should_say_how_much_room_there_is_by_whichever_limit_ends_first() -> None:
    assert DiskBudget(DiskLimits(1, 1)).room_bytes is None
    disk = budget()
    disk.take(QUOTA - 10)
    assert disk.room_bytes == 10
    disk.measured_volume(0, VOLUME, disk.taken_bytes)
    assert disk.room_bytes == 0
    disk.counted_data(2 * QUOTA, disk.taken_bytes)
    assert disk.room_bytes == 0


def test_should_fill_the_quota_to_the_brim_and_no_more() -> None:
    disk = budget()
    disk.take(QUOTA - 1)
    disk.take(1)
    refused = refusal(disk, 1)
    assert "takes 6.2 KiB of its quota of 6.2 KiB (--disk-quota), and these records take 1 B: delete" in refused.message
    assert refused.details == {"usedBytes": QUOTA, "quotaBytes": QUOTA}


def test_should_leave_the_reserve_alone() -> None:
    disk = budget(quota_bytes=None, reserve_bytes=VOLUME - 1000)
    disk.take(1000)
    refused = refusal(disk, 1)
    assert "has 624.0 KiB free and keeps 624.0 KiB of them in reserve (--disk-reserve)" in refused.message
    assert refused.details == {"freeBytes": VOLUME - 1000, "reserveBytes": VOLUME - 1000}


@pytest.mark.parametrize(("volume_bytes", "reserve_bytes"), [(20 * GIB, GIB), (10 * GIB, GIB // 2), (100 * GIB, GIB)])
def test_should_reserve_a_part_of_the_volume_when_it_is_not_told_how_much(
    volume_bytes: int, reserve_bytes: int
) -> None:
    disk = DiskBudget(DiskLimits())
    disk.measured_volume(reserve_bytes + 10, volume_bytes, 0)
    assert disk.reserve_bytes == reserve_bytes <= DISK_RESERVE_BYTES_MAX
    disk.take(10)
    refusal(disk, 1)


def test_should_stay_full_until_there_is_room_to_spare_by_the_quota() -> None:
    disk = budget()
    disk.take(QUOTA)
    refusal(disk, 1)
    disk.gave_back(99)
    assert refusal(disk, 1).details["usedBytes"] == QUOTA - 99
    disk.gave_back(1)
    assert not disk.is_full
    disk.take(100)
    refusal(disk, 1)


def test_should_stay_full_until_there_is_room_for_what_was_refused() -> None:
    disk = budget()
    disk.take(QUOTA - 500)
    refusal(disk, 2_000)
    disk.gave_back(1_499)
    assert refusal(disk, 1).details["usedBytes"] == QUOTA - 1_999
    disk.gave_back(1)
    disk.take(2_000)


def test_should_go_on_when_it_is_asked_for_more_than_it_could_ever_hold() -> None:
    disk = budget()
    refusal(disk, QUOTA + 1)
    disk.take(1)


def test_should_stay_full_until_there_is_room_to_spare_on_the_volume() -> None:
    disk = budget(quota_bytes=None, reserve_bytes=1000)
    disk.measured_volume(1000, VOLUME, 0)
    refusal(disk, 1)
    disk.gave_back(VOLUME)
    disk.measured_volume(1000 + VOLUME // 64 - 1, VOLUME, 0)
    assert "reserve" in refusal(disk, 1).message
    disk.measured_volume(1000 + VOLUME // 64, VOLUME, 0)
    disk.take(1)


def test_should_count_what_was_appended_while_others_counted() -> None:
    disk = budget()
    before = disk.taken_bytes
    disk.take(1000)
    disk.counted_data(QUOTA - 1500, before)
    assert disk.used_bytes == QUOTA - 1500
    disk.take(500)
    refusal(disk, 1)


@given(st.lists(st.tuples(st.sampled_from(["take", "delete", "count", "look"]), st.integers(0, 500)), max_size=60))
def test_should_never_pass_a_limit_and_never_refuse_what_has_room_while_it_is_open(
    steps: list[tuple[str, int]],
) -> None:
    disk, used = DiskBudget(DiskLimits(2000, 300)), 0
    not_seen_free = 0  # what was deleted since the volume was looked at last
    disk.measured_volume(2500, 2500, 0)
    disk.counted_data(0, 0)
    for step, size in steps:
        match step:
            case "take":
                was_full = disk.is_full
                try:
                    disk.take(size)
                    used += size
                except DiskFullError:
                    assert was_full or used + size > 2000 or 2500 - used - not_seen_free - size < 300
            case "delete":
                deleted = min(size, used)
                used -= deleted
                not_seen_free += deleted
                disk.gave_back(deleted)
            case "count":
                disk.counted_data(used, disk.taken_bytes)
            case _:
                disk.measured_volume(2500 - used, 2500, disk.taken_bytes)
                not_seen_free = 0
        assert used <= 2000
        assert 2500 - used >= 300
