"""What happened lately: the bounded history that watches are served from.

Owns, per resource, the last changes in order of their revision. A watcher holds no queue, only the revision that it
has seen: `since` gives it what came after, or refuses (410) when the history no longer reaches back that far, so a
slow watcher costs nothing. Lives as long as the process; after a restart it begins at the stored revision.

Invariants: revisions rise; every change with a revision above `oldest` is present.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

from headrace.core.limits import DEV_WATCH_HISTORY_BYTES_MAX, DEV_WATCH_HISTORY_MAX
from headrace.core.slotted import dataclass
from headrace.dev.api.objects import GroupResource, Object
from headrace.dev.api.status import expired


class ChangeType(StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class Change:
    revision: int
    type: ChangeType
    object: Object
    """As it is now; of a deleted object its last state, with the revision of the deletion."""
    previous: Object | None = None
    """As it was before: a selector may have matched it then."""
    size_bytes: int = 0
    """Of the object in JSON: what the change weighs against the history's bound."""


class ResourceHistory:
    """The changes of one resource."""

    def __init__(
        self, oldest: int, changes_max: int = DEV_WATCH_HISTORY_MAX, bytes_max: int = DEV_WATCH_HISTORY_BYTES_MAX
    ) -> None:
        self.oldest = oldest
        """Changes up to and including this revision are forgotten."""
        self._changes_max = changes_max
        self._bytes_max = bytes_max
        self._changes: list[Change] = []
        self._bytes = 0

    def record(self, change: Change) -> None:
        self._changes.append(change)
        self._bytes += change.size_bytes
        if len(self._changes) > self._changes_max or self._bytes > self._bytes_max:
            self._forget_half()

    def _forget_half(self) -> None:
        """By half, not one by one: dropping the first element of a list for each change would copy it each time."""
        # The newest change always stays, whatever it weighs.
        forgotten = self._changes[: max(len(self._changes) // 2, 1)] if len(self._changes) > 1 else []
        if forgotten:
            self.oldest = forgotten[-1].revision
            self._bytes -= sum(change.size_bytes for change in forgotten)
            del self._changes[: len(forgotten)]

    def since(self, revision: int) -> list[Change]:
        """The changes after `revision`. Raises StatusError 410 when some of them are forgotten."""
        if revision < self.oldest:
            raise expired(revision, self.oldest)
        first = bisect_right(self._changes, revision, key=lambda change: change.revision)
        return self._changes[first:]


class History:
    """The changes of all resources, and whom to wake when one comes."""

    def __init__(self, oldest: int) -> None:
        self._oldest = oldest
        self._resources: dict[GroupResource, ResourceHistory] = {}
        self._watchers: dict[asyncio.Event, GroupResource | None] = {}
        self.closed = False

    def of(self, resource: GroupResource) -> ResourceHistory:
        return self._resources.setdefault(resource, ResourceHistory(self._oldest))

    def record(self, resource: GroupResource, change: Change) -> None:
        self.of(resource).record(change)
        for wake, wanted in self._watchers.items():
            if wanted is None or wanted == resource:
                wake.set()

    @contextmanager
    def watching(self, resource: GroupResource | None) -> Iterator[asyncio.Event]:
        """An event that is set with each change of `resource` (None: of any), and when the history closes."""
        wake = asyncio.Event()
        self._watchers[wake] = resource
        try:
            yield wake
        finally:
            del self._watchers[wake]

    def close(self) -> None:
        """End every watch: the server stops."""
        self.closed = True
        for wake in self._watchers:
            wake.set()
