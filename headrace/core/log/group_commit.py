"""When is an append acknowledged? Group commit of one partition, without I/O.

Owns what one replica's log may vouch for, from the opening of the log until its end. The shell appends, carries out
effects in their order, and reports back; it decides nothing.

    Fsync       appended ──> Sync ──> synced ──> Release of all that the sync covered, next Sync where more has come
    Replicated  appended ──> Release at once;    Sync when `REPLICATED_SYNC_BYTES` have come: recovery stays short
    both        Sync ──> failed ──> GiveUp, for ever: a page whose write failed is clean in the page cache, so that a
                                    second fdatasync would succeed without it

Invariants: `durable_end` never falls; one sync at most is in flight; a waiter gets one answer, in the order of appends;
under Fsync never before `durable_end` has reached the end of its append. Called by the broker's partition task.
"""

from collections import deque
from dataclasses import dataclass, field

from headrace.core.limits import REPLICATED_SYNC_BYTES
from headrace.core.resources.topic import Durability
from headrace.core.types import Offset


@dataclass(frozen=True, slots=True)
class Sync:
    """Run `PartitionLog.sync`, then report `synced(its result)` or `failed(why)`."""

    up_to: Offset
    """It has to cover everything below."""
    reason: str


@dataclass(frozen=True, slots=True)
class Release:
    """This replica vouches for these appends: tell whoever waits, in this order."""

    waiters: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The disk failed: refuse these waiters, surrender every seat of the broker, stop."""

    waiters: tuple[int, ...]
    reason: str


Effect = Sync | Release | GiveUp


@dataclass(slots=True)
class GroupCommit:
    durability: Durability
    """As the topic says now; changed by `configured`."""
    durable_end: Offset
    """First offset that is not known to be on disk."""
    log_end: Offset

    _in_flight: Offset | None = None
    """What the running sync was asked to cover; None when none runs."""
    _waiting: deque[tuple[Offset, int]] = field(default_factory=deque)
    """(end of the append, waiter) in order, all above `durable_end`."""
    _unsynced_bytes: int = 0
    """Appended since the last sync was started."""
    _wanted: bool = False
    """Something was appended under Fsync since the last sync was started."""
    _failure: str = ""

    @property
    def vouched_end(self) -> Offset:
        """First offset that this replica does not vouch for: what its vote for the high watermark says."""
        return self.durable_end if self.durability is Durability.FSYNC else self.log_end

    def configured(self, durability: Durability) -> list[Effect]:
        """The topic says so. What was vouched for from memory goes to disk at once where that is Fsync now."""
        if durability is Durability.FSYNC and self.durability is not durability and self.durable_end < self.log_end:
            self._wanted = True
        self.durability = durability
        return self._maybe_sync("durability is Fsync now")

    def appended(self, log_end: Offset, append_bytes: int, waiter: int | None = None) -> list[Effect]:
        """An append of `append_bytes` was written to the page cache and the log now ends at `log_end`.

        `waiter` is any number of the shell's own; None where nobody waits.
        """
        waiters = () if waiter is None else (waiter,)
        if self._failure:
            return [GiveUp(waiters, self._failure)]
        self.log_end = log_end
        self._unsynced_bytes += append_bytes
        if self.durability is Durability.REPLICATED:
            return [*_release(waiters, "durability is Replicated"), *self._maybe_sync("enough is unsynced")]
        self._waiting.extend((log_end, each) for each in waiters)
        self._wanted = True
        return self._maybe_sync("append")

    def synced(self, durable_end: Offset) -> list[Effect]:
        """The sync came back: everything below `durable_end` is on disk."""
        assert self._in_flight is not None, "a sync reports that was never asked for"
        assert durable_end >= self._in_flight, f"sync to {durable_end} does not cover {self._in_flight}"
        self._in_flight = None
        self.durable_end = max(self.durable_end, durable_end)
        released = []
        while self._waiting and self._waiting[0][0] <= self.durable_end:
            released.append(self._waiting.popleft()[1])
        self._wanted = self._wanted and self.durable_end < self.log_end
        return [
            *_release(tuple(released), f"durable to {self.durable_end}"),
            *self._maybe_sync("appended during the last sync"),
        ]

    def failed(self, reason: str) -> list[Effect]:
        """The sync failed: what it covered may or may not be on disk, and nothing will ever tell."""
        self._in_flight, self._failure = None, f"fdatasync failed: {reason}"
        refused = tuple(waiter for _, waiter in self._waiting)
        self._waiting.clear()
        return [GiveUp(refused, self._failure)]

    def _maybe_sync(self, reason: str) -> list[Effect]:
        due = self._wanted or self._unsynced_bytes >= REPLICATED_SYNC_BYTES
        if self._failure or self._in_flight is not None or not due:
            return []
        self._in_flight, self._unsynced_bytes, self._wanted = self.log_end, 0, False
        return [Sync(self.log_end, reason)]


def _release(waiters: tuple[int, ...], reason: str) -> list[Effect]:
    return [Release(waiters, reason)] if waiters else []
