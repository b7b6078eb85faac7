"""The disk that all partitions share: what it counts, what it says when it fills, and its ballast."""

import logging
from pathlib import Path

import pytest

from headrace.core.errors import DiskFullError, StorageFailedError
from headrace.core.limits import DISK_BALLAST_BYTES
from headrace.core.log.disk_quota import DiskLimits
from headrace_broker.broker_disk import BrokerDisk
from headrace_broker.metrics import Metrics
from headrace_broker.storage.disk import BALLAST_FILE, Ballast, Volume, bytes_in, volume_of


def disk_of(root: Path, quota_bytes: int | None, metrics: Metrics) -> BrokerDisk:
    return BrokerDisk(root, DiskLimits(quota_bytes, 0), metrics, lambda reason: None)


def test_should_count_all_files_below_a_directory(tmp_path: Path) -> None:
    (tmp_path / "partitions" / "a").mkdir(parents=True)
    (tmp_path / "partitions" / "a" / "0.log").write_bytes(bytes(1000))
    (tmp_path / "disk.json").write_bytes(b"{}")
    (tmp_path / "elsewhere").symlink_to("/")
    assert bytes_in(tmp_path) == 1002 + len("/")
    assert bytes_in(tmp_path / "gone") == 0


def test_should_say_when_it_cannot_ask_the_file_system(tmp_path: Path) -> None:
    with pytest.raises(StorageFailedError, match="asking how full the volume of"):
        volume_of(tmp_path / "nothing")


async def test_should_say_once_that_it_is_full_and_once_that_it_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = Metrics()
    (tmp_path / "0.log").write_bytes(bytes(60_000))
    (tmp_path / BALLAST_FILE).touch()
    disk = disk_of(tmp_path, 64_000, metrics)
    with caplog.at_level(logging.WARNING):
        await disk.check()
        disk.take(4_000)
        for _ in range(2):
            with pytest.raises(DiskFullError, match=r"of its quota of 62\.5 KiB"):
                disk.take(1)
            await disk.check()
        assert disk.is_full
        disk.gave_back(30_000)
        await disk.check()
        disk.take(1)
    assert [record.message[:24] for record in caplog.records] == [
        "appends are refused: the",
        "there is room on the dis",
    ]
    assert metrics.registry.get_sample_value("headrace_broker_appends_refused_total") == 2
    assert metrics.registry.get_sample_value("headrace_broker_disk_bytes", {"kind": "quota"}) == 64_000
    assert metrics.registry.get_sample_value("headrace_broker_disk_bytes", {"kind": "used"}) == 30_000
    assert metrics.registry.get_sample_value("headrace_broker_disk_bytes", {"kind": "room"}) == 29_999


async def test_should_be_full_when_the_file_system_has_no_room_though_there_should_be(tmp_path: Path) -> None:
    metrics = Metrics()
    disk = disk_of(tmp_path, None, metrics)
    await disk.check()
    disk.ran_out()
    assert disk.is_full
    with pytest.raises(DiskFullError, match="--disk-reserve"):
        disk.take(1)
    await disk.check()
    disk.take(1)
    assert metrics.registry.get_sample_value("headrace_broker_appends_refused_total") == 2


async def test_should_know_how_full_the_volume_is_though_its_ballast_cannot_be_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / f"{BALLAST_FILE}.new").mkdir()
    disk = disk_of(tmp_path, None, Metrics())
    disk.ran_out()
    for _ in range(2):
        await disk.check()
    assert not disk.is_full
    assert caplog.text.count("keeping the ballast") == 1


def test_should_give_its_ballast_up_on_a_full_volume_and_take_it_again(tmp_path: Path) -> None:
    ballast, file = Ballast(tmp_path), tmp_path / BALLAST_FILE
    ballast.tend(Volume(4 * DISK_BALLAST_BYTES - 1, 1 << 40))
    assert not file.exists()
    for _ in range(2):
        ballast.tend(Volume(4 * DISK_BALLAST_BYTES, 1 << 40))
        assert file.stat().st_size == DISK_BALLAST_BYTES
    Ballast(tmp_path).give_up_where_full(Volume(DISK_BALLAST_BYTES, 1 << 40))
    assert file.exists()
    ballast.tend(Volume(DISK_BALLAST_BYTES - 1, 1 << 40))
    assert not file.exists()
    ballast.tend(Volume(0, 1 << 40))
