"""The group commit of one partition, without I/O: up to where this replica vouches for its log.

It owns the durable end of one replica's log, from the opening of the log until its end, and decides when to sync. The
shell appends, carries out effects in their order, and reports back; it decides nothing. A waiter for an append waits
for the partition's high watermark (`headrace.core.replication.leadership`), of which `vouched_end` is one vote.

    Fsync       appended ──> Sync ──> synced ──> next Sync where more has come
    Replicated  appended ──> Sync when `REPLICATED_SYNC_BYTES` have come: recovery stays short
    both        Sync ──> failed ──> GiveUp, for ever: a page whose write failed is clean in the page cache, so that a
                                    second fdatasync would succeed without it
                truncating ──> truncated ──> appended: a follower's log is cut, and the cut is on disk before anything
                                    is appended; a sync that was in flight then vouches for nothing

Invariants: `durable_end` never passes `log_end` and falls only with it; one sync at most is in flight; nothing that a
truncation took away is ever vouched for, whatever a sync reports that had covered it.
"""

from dataclasses import dataclass

from headrace.core.resources.topic import Durability
from headrace.core.types import Offset

REPLICATED_SYNC_BYTES = 64 << 20
"""The bytes after which durability Replicated syncs in the background."""


@dataclass(frozen=True, slots=True)
class Sync:
    """The effect: run `PartitionLog.sync`, then report `synced(its result)` or `failed(why)`."""

    up_to: Offset
    """The end of what it has to cover."""
    reason: str


@dataclass(frozen=True, slots=True)
class SurrenderSeats:
    """The effect of a failed disk: surrender every seat of the broker, and stop."""

    reason: str


Effect = Sync | SurrenderSeats


@dataclass(slots=True)
class GroupCommit:
    durability: Durability
    """The durability of the topic now; changed by `configured`."""
    durable_end: Offset
    """The first offset that is not known to be on disk."""
    log_end: Offset

    _in_flight: Offset | None = None
    """The end that the running sync was asked to cover; None when none runs."""
    _unsynced_bytes: int = 0
    """The bytes appended since the last sync was started."""
    _wanted: bool = False
    """True where something was appended under Fsync since the last sync was started."""
    _failed: bool = False
    _truncating: bool = False
    _in_flight_is_void: bool = False
    """True where the log was cut after the running sync was started."""

    @property
    def vouched_end(self) -> Offset:
        """Return the first offset that this replica does not vouch for: its vote for the high watermark."""
        return self.durable_end if self.durability is Durability.FSYNC else self.log_end

    def configured(self, durability: Durability) -> list[Sync]:
        """Take the topic's durability. Where that is Fsync now, what was vouched for from memory goes to disk at
        once."""
        if durability is Durability.FSYNC and self.durability is not durability and self.durable_end < self.log_end:
            self._wanted = True
        self.durability = durability
        return self._maybe_sync("durability is Fsync now")

    def appended(self, log_end: Offset, append_bytes: int) -> list[Sync]:
        """Note that an append of `append_bytes` was written to the page cache and the log now ends at `log_end`."""
        assert not self._failed, "nothing is appended to a log that was given up"
        assert not self._truncating, "nothing is appended before the cut is on disk"
        self.log_end = log_end
        self._unsynced_bytes += append_bytes
        self._wanted = self._wanted or self.durability is Durability.FSYNC
        return self._maybe_sync("append")

    def truncating(self, end: Offset) -> None:
        """Note that the log is about to be cut at `end`, or a little below: from now on nothing above is vouched
        for."""
        self.log_end, self.durable_end = min(self.log_end, end), min(self.durable_end, end)
        self._truncating, self._in_flight_is_void = True, self._in_flight is not None

    def truncated(self, log_end: Offset) -> None:
        """Note that the log ends at `log_end` now, and all of it is on disk."""
        assert self._truncating, "a cut is announced before it is made"
        self.log_end = self.durable_end = log_end
        self._unsynced_bytes, self._wanted, self._truncating = 0, False, False

    def synced(self, durable_end: Offset) -> list[Sync]:
        """Note that the sync came back: everything below `durable_end` is on disk."""
        assert self._in_flight is not None, "a sync reports that was never asked for"
        covers = durable_end >= self._in_flight or self._in_flight_is_void
        assert covers, f"sync to {durable_end} does not cover {self._in_flight}"
        if not self._in_flight_is_void:
            self.durable_end = max(self.durable_end, durable_end)
        self._in_flight, self._in_flight_is_void = None, False
        self._wanted = self._wanted and self.durable_end < self.log_end
        return self._maybe_sync("appended during the last sync")

    def failed(self, reason: str) -> SurrenderSeats:
        """Note that the sync failed: what it covered may or may not be on disk, and nothing can ever decide that."""
        self._in_flight, self._failed = None, True
        return SurrenderSeats(f"fdatasync failed: {reason}")

    def _maybe_sync(self, reason: str) -> list[Sync]:
        due = self._wanted or self._unsynced_bytes >= REPLICATED_SYNC_BYTES
        if self._failed or self._truncating or self._in_flight is not None or not due:
            return []
        self._in_flight, self._unsynced_bytes, self._wanted = self.log_end, 0, False
        return [Sync(self.log_end, reason)]
