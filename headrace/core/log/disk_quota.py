"""The quota of a broker's disk: how much more may be written, and the reserve that stays free. Decisions, no I/O.

    open ──> an append that finds no room ──> full ──> measured, with room to spare ──> open

All appends of a broker take from one budget. Measuring takes time while appends go on, so everything is counted in
bytes taken since the start: a measurement carries how many were taken when it began, and what is appended meanwhile
counts as if it had not been seen. The budget so errs by little, and never to the side of too much.

The reserve keeps the broker alive: checkpoints, indexes, compaction and the deletion of records use it. A full disk
takes nothing until there is room to spare, and for what was refused, so that it does not fill and empty with every
segment deleted. An append that the whole quota could not take is refused and changes nothing.
`headrace_broker.broker_disk` calls it.
"""

from dataclasses import dataclass
from typing import Final

from headrace.core.errors import DiskFullError
from headrace.core.units import format_bytes

DISK_RESERVE_BYTES_MAX = 1 << 30
"""The room that stays free by default, or a twentieth of the volume where that is less."""
DISK_ROOM_TO_SPARE_BYTES_MAX = 256 << 20
"""The room from which a full disk takes appends again, or 1/64 of quota and volume where that is less."""


_RESERVE_PART: Final = 20
"""The divisor of a volume that gives its reserve."""
_SPARE_PART: Final = 64
"""The divisor of the quota or of the volume that gives the room to spare."""
_ENDLESS: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class DiskLimits:
    """The limits in the broker's settings."""

    quota_bytes: int | None = None
    """The bytes that its data may take; None: as much as there is."""
    reserve_bytes: int | None = None
    """The bytes that stay free on the volume; None: a twentieth of it, at most DISK_RESERVE_BYTES_MAX."""


class DiskBudget:
    def __init__(self, limits: DiskLimits) -> None:
        self.taken_bytes = 0
        """The bytes taken by appends, since the start."""
        self.used_bytes = 0
        """The bytes of all of the broker's data, when it was last counted."""
        self.quota_bytes = limits.quota_bytes
        self.reserve_bytes = limits.reserve_bytes or 0
        """The bytes that are kept free on the volume as it is now."""
        self.is_full = False
        """True while nothing is taken, whatever room there is."""
        self._refused_bytes = 0
        """The size of the append that found no room."""
        self._limits = limits
        self._volume_bytes = _ENDLESS
        # Appends are refused from so many bytes taken on:
        self._quota_end = self._reserve_end = self._end = _ENDLESS

    @property
    def room_bytes(self) -> int | None:
        """Return what may still be appended, by quota and volume. None before either is known."""
        return None if self._end == _ENDLESS else max(0, self._end - self.taken_bytes)

    def take(self, size: int) -> None:
        """Take room for an append of `size` bytes, which is about to be written. Raises DiskFullError."""
        if self.is_full or self.taken_bytes + size > self._end:
            if not self.is_full and size <= min(self.quota_bytes or _ENDLESS, self._volume_bytes - self.reserve_bytes):
                self.is_full, self._refused_bytes = True, size
            raise self._refusal(size)
        self.taken_bytes += size

    def measured_volume(self, free_bytes: int, volume_bytes: int, taken_before: int) -> None:
        """Note that the file system has so much left for this process, of so much in all."""
        self._volume_bytes = volume_bytes
        if self._limits.reserve_bytes is None:
            self.reserve_bytes = min(volume_bytes // _RESERVE_PART, DISK_RESERVE_BYTES_MAX)
        self._reserve_end = taken_before + free_bytes - self.reserve_bytes
        self._maybe_open()

    def counted_data(self, used_bytes: int, taken_before: int) -> None:
        """Note that all files of the broker together have so many bytes."""
        self.used_bytes = used_bytes
        if self.quota_bytes is not None:
            self._quota_end = taken_before + self.quota_bytes - used_bytes
        self._maybe_open()

    def gave_back(self, size: int) -> None:
        """Note that so many bytes were deleted: there is room by the quota at once, on the volume after its next
        measurement."""
        self.used_bytes -= size
        if self.quota_bytes is not None:
            self._quota_end += size
        self._maybe_open()

    def _maybe_open(self) -> None:
        self._end = min(self._quota_end, self._reserve_end)
        by_quota, on_volume = self._quota_end - self.taken_bytes, self._reserve_end - self.taken_bytes
        if by_quota >= self._wanted(self.quota_bytes) and on_volume >= self._wanted(self._volume_bytes):
            self.is_full, self._refused_bytes = False, 0

    def _wanted(self, whole_bytes: int | None) -> int:
        """Return the room that opens a full disk: 0 where there is no limit."""
        spare = 0 if whole_bytes is None else min(whole_bytes // _SPARE_PART, DISK_ROOM_TO_SPARE_BYTES_MAX)
        return max(spare, self._refused_bytes)

    def _refusal(self, size: int) -> DiskFullError:
        quota_bytes, left_by_quota = self.quota_bytes, self._quota_end - self.taken_bytes
        if quota_bytes is not None and left_by_quota < max(size, self._wanted(quota_bytes)):
            used_bytes = quota_bytes - left_by_quota
            return DiskFullError(
                f"the broker's data takes {format_bytes(used_bytes)} of its quota of {format_bytes(quota_bytes)}"
                f" (--disk-quota), and these records take {format_bytes(size)}: delete records or topics that nobody"
                " needs, shorten their retention, or raise the quota",
                usedBytes=used_bytes,
                quotaBytes=quota_bytes,
            )
        free_bytes = self._reserve_end - self.taken_bytes + self.reserve_bytes
        return DiskFullError(
            f"the broker's volume has {format_bytes(free_bytes)} free and keeps {format_bytes(self.reserve_bytes)} of"
            f" them in reserve (--disk-reserve), and these records take {format_bytes(size)}: delete records or topics"
            " that nobody needs, shorten their retention, or grow the volume",
            freeBytes=free_bytes,
            reserveBytes=self.reserve_bytes,
        )
