"""One watch, without I/O: which events a client sees, and in which order.

    state (ADDED each) -> its end (BOOKMARK) -> changes, in order of revision; bookmarks where they are allowed

A change counts for what the selector saw before and after it: an object that no longer matches is DELETED for this
watch, one that begins to match is ADDED. Invariant: `revision` never goes back, and nothing up to it is still to be
sent. Called by `streaming`, once for each watch.
"""

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager

from headrace.core.slotted import dataclass
from headrace.dev.api.history import Change, ChangeType
from headrace.dev.api.kinds import Kind
from headrace.dev.api.objects import Object
from headrace.dev.api.selectors import Selection
from headrace.dev.api.store import Store

_STATE_END = {"k8s.io/initial-events-end": "true"}


@dataclass(frozen=True, slots=True)
class WatchOptions:
    selection: Selection
    starts_with_state: bool
    marks_state_end: bool
    """Send a bookmark after the state, so that the client knows that it has all of it."""
    after: int
    """The revision that the client has seen; 0 where the state comes first."""
    bookmarks: bool
    timeout_s: int


@dataclass(frozen=True, slots=True)
class WatchEvent:
    type: str
    object: Object


class Watch:
    def __init__(self, store: Store, kind: Kind, namespace: str | None, options: WatchOptions) -> None:
        self._store = store
        self._kind = kind
        self._namespace = namespace
        self._options = options
        self.timeout_s = options.timeout_s
        self.bookmarks = options.bookmarks
        self.revision = options.after

    def waking(self) -> AbstractContextManager[asyncio.Event]:
        """An event that is set when something may be pending, or the watch has to end."""
        return self._store.history.watching(self._kind.storage)

    @property
    def closed(self) -> bool:
        """The server stops."""
        return self._store.history.closed

    def state(self) -> Iterator[WatchEvent]:
        """What comes first: the state of now, where it is asked for. Call once, before `pending`."""
        if not self._options.starts_with_state:
            return
        self.revision = self._store.revision  # Not an earlier one: changes in between are part of this state.
        for obj in self._store.list(self._kind.storage, self._namespace):
            if self._options.selection.matches(obj):
                yield WatchEvent(ChangeType.ADDED, self._kind.from_stored(obj))
        if self._options.marks_state_end and self._options.bookmarks:
            yield self._bookmark(_STATE_END)

    def pending(self) -> list[WatchEvent]:
        """What has happened since the last call. Raises StatusError 410 when the history has forgotten some of it."""
        changes = self._store.history.of(self._kind.storage).since(self.revision)
        self.revision = max(self.revision, self._store.revision)
        seen = (self._seen(change) for change in changes if self._is_here(change))
        return [event for event in seen if event is not None]

    def bookmark(self) -> WatchEvent:
        """How far this watch has come, for a client that wants to go on from here. Only with nothing pending."""
        return self._bookmark({})

    def _is_here(self, change: Change) -> bool:
        return self._namespace is None or change.object["metadata"].get("namespace", "") == self._namespace

    def _seen(self, change: Change) -> WatchEvent | None:
        matched = change.previous is not None and self._options.selection.matches(change.previous)
        matches = change.type is not ChangeType.DELETED and self._options.selection.matches(change.object)
        match matched, matches:
            case False, True:
                event_type = ChangeType.ADDED
            case True, True:
                event_type = ChangeType.MODIFIED
            case True, False:
                event_type = ChangeType.DELETED
            case _:
                return None
        return WatchEvent(event_type, self._kind.from_stored(change.object))

    def _bookmark(self, annotations: dict[str, str]) -> WatchEvent:
        meta: Object = {"resourceVersion": str(self.revision)}
        if annotations:
            meta["annotations"] = annotations
        marker = {"kind": self._kind.kind, "apiVersion": self._kind.api_version, "metadata": meta}
        return WatchEvent("BOOKMARK", marker)
