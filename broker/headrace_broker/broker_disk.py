"""The one disk of a broker, as its partitions see it: the room for appends, and the notification of its failure.

There is one per process. `take` and `gave_back` run on the event loop, with each append and deletion; `watch` checks
the volume and counts the broker's files in threads, beside everything else. Until the first check there is room.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from headrace.core.errors import DiskFullError, HeadraceError
from headrace.core.log.disk_quota import DiskBudget, DiskLimits
from headrace_broker.clock import monotonic_ms
from headrace_broker.metrics import Metrics
from headrace_broker.storage.disk import Ballast, Volume, bytes_in, storage_errors, volume_of

DISK_LOOK_INTERVAL_MS = 1_000
"""The interval at which a broker checks the free room of its volume: other programs may write to it too."""
DISK_COUNT_INTERVAL_MS = 10_000
"""The interval at which a broker counts its own files."""
DISK_COUNT_TIME_PART_MAX = 0.01
"""The largest part of the time that counting many files takes; its interval grows instead."""


_log = logging.getLogger(__name__)


class BrokerDisk:
    def __init__(self, root: Path, limits: DiskLimits, metrics: Metrics, failed: Callable[[str], None]) -> None:
        self._failed = failed
        self._root = root
        self._ballast = Ballast(root)
        self._budget = DiskBudget(limits)
        self._refused = metrics.appends_refused
        self._was_full = False
        self._ballast_trouble = ""
        self._next_count_ms = 0
        metrics.watch_disk(self._budget)

    @property
    def is_full(self) -> bool:
        return self._budget.is_full

    def failed(self, place: object, why: str) -> None:
        """Note that a write or a sync of this partition has failed: this broker must not go on."""
        _log.critical("%s: the disk failed, this broker stops: %s", place, why)
        self._failed(f"{place}: {why}")

    def take(self, size: int) -> None:
        """Take room for an append of so many bytes. Raises DiskFullError."""
        try:
            self._budget.take(size)
        except DiskFullError as error:
            self._refused.inc()
            self._maybe_tell(error.message)
            raise

    def ran_out(self) -> None:
        """Note that the file system had no room for an append that was taken, because other programs write to it
        too."""
        self._budget.is_full = True
        self._refused.inc()
        self._maybe_tell("the volume has no room left")

    def gave_back(self, size: int) -> None:
        self._budget.gave_back(size)

    async def watch(self) -> None:
        """Watch the disk without end."""
        while True:
            try:
                await self.check()
            except HeadraceError as error:
                _log.warning("cannot read how full the disk is: %s", error)
            await asyncio.sleep(DISK_LOOK_INTERVAL_MS / 1000)

    async def check(self) -> None:
        """Check the disk once. Raises StorageFailedError."""
        budget, before = self._budget, self._budget.taken_bytes
        volume = await asyncio.to_thread(self._look)
        budget.measured_volume(volume.free_bytes, volume.volume_bytes, before)
        if monotonic_ms() >= self._next_count_ms:
            await self._count()
        self._maybe_tell("")

    def _look(self) -> Volume:
        trouble = ""
        try:
            with storage_errors(f"keeping the ballast in {self._root}"):
                self._ballast.tend(volume_of(self._root))
        except HeadraceError as error:
            trouble = str(error)
        if trouble != self._ballast_trouble:
            _log.warning("%s", trouble or "the ballast is as it should be again")
        self._ballast_trouble = trouble
        return volume_of(self._root)  # The ballast that was just taken is not free.

    async def _count(self) -> None:
        before, started_ms = self._budget.taken_bytes, monotonic_ms()
        self._budget.counted_data(await asyncio.to_thread(bytes_in, self._root), before)
        ended_ms = monotonic_ms()
        # A task that makes room on a full disk waits for it.
        interval_ms = DISK_LOOK_INTERVAL_MS if self.is_full else DISK_COUNT_INTERVAL_MS
        self._next_count_ms = ended_ms + max(interval_ms, int((ended_ms - started_ms) / DISK_COUNT_TIME_PART_MAX))

    def _maybe_tell(self, why: str) -> None:
        """Report a full disk, once for each time that it fills."""
        if self._budget.is_full and not self._was_full:
            _log.error("appends are refused: %s", why)
        elif self._was_full and not self._budget.is_full:
            _log.warning("there is room on the disk again: appends are taken")
        self._was_full = self._budget.is_full
