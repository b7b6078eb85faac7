"""What a broker does by itself, now and then, with the partitions that it holds.

Each open partition is cleaned (`Cleaner.expire`) once an interval, one after the other, so that a thousand of them are
spread over it, and more often while the disk is full; and at the next tick where it says that something but the time
has changed (`wants_cleaning`): a segment was closed, its topic has another retention. Beside it high watermarks are
written to disk, and orphans looked for.

Runs from the first partition's opening to the drain, in tasks of the process. A partition that cannot be cleaned is
logged and tried again an interval later; the others go on.
"""

import asyncio
import logging
import random

from headrace.core.errors import HeadraceError
from headrace.core.limits import (
    HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS,
    HOUSEKEEPING_FULL_INTERVAL_MS,
    HOUSEKEEPING_TICK_MS,
    ORPHAN_PURGE_INTERVAL_MS,
)
from headrace.core.types import PartitionKey
from headrace_broker.broker_disk import BrokerDisk
from headrace_broker.clock import monotonic_ms
from headrace_broker.holdings import Holdings
from headrace_broker.partition import Partition

_log = logging.getLogger(__name__)


class Housekeeping:
    def __init__(self, holdings: Holdings, disk: BrokerDisk, interval_ms: int) -> None:
        self._holdings = holdings
        self._disk = disk
        self._interval_ms = interval_ms
        self._cleaned_ms: dict[PartitionKey, int] = {}
        """When each open partition was cleaned last."""

    async def checkpoint(self) -> None:
        """For ever: high watermarks to disk, and a look at the orphans."""
        since_look_ms = ORPHAN_PURGE_INTERVAL_MS
        while True:
            if since_look_ms >= ORPHAN_PURGE_INTERVAL_MS:
                await self._holdings.find_overdue()
                since_look_ms = 0
            await asyncio.sleep(HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS / 1000)
            since_look_ms += HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS
            await self._holdings.checkpoint()

    async def clean(self) -> None:
        """For ever: what retention is over for goes."""
        while True:
            await asyncio.sleep(HOUSEKEEPING_TICK_MS / 1000)
            await self._clean_all()

    async def _clean_all(self) -> None:
        """In a frame of its own: one that waits for long would keep the last partition, and its files, with it."""
        for partition in self._due(monotonic_ms()):
            await _clean(partition)

    def _due(self, now_ms: int) -> list[Partition]:
        known, interval_ms = self._cleaned_ms, self._interval_ms
        partitions = self._holdings.open_partitions()
        # Whoever is new has its turn at a moment of its own: all are opened at once, when the broker starts.
        self._cleaned_ms = {
            each.key: known.get(each.key) or now_ms - random.randint(0, interval_ms) for each in partitions
        }
        if self._disk.is_full:
            interval_ms = min(interval_ms, HOUSEKEEPING_FULL_INTERVAL_MS)
        due = [
            each
            for each in partitions
            if each.cleaner.wants_cleaning or now_ms - self._cleaned_ms[each.key] >= interval_ms
        ]
        for each in due:
            self._cleaned_ms[each.key] = now_ms
        return due


async def _clean(partition: Partition) -> None:
    try:
        await partition.cleaner.expire()
    except HeadraceError as error:
        _log.warning("%s: not cleaned: %s", partition.place, error)
    except Exception:  # a mistake of our own with one partition must not end the others' housekeeping
        _log.exception("%s: not cleaned", partition.place)
