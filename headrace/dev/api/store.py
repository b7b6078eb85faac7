"""The state on disk, the one counter that numbers all changes, and the watches that follow them.

`Store` owns a SQLite file in WAL mode and a mirror of it in memory, from which all reads are served. A write is one
transaction of the object and the counter, committed before any reader can see it, so that neither is ever behind the
other after a kill -9. It is also synced to the disk, unless it is a Lease or an Event.

`History` keeps, per resource, the last changes in order of their revision. A watcher holds no queue, only the revision
that it has seen: `since` gives it what came after, or refuses (410) when the history no longer reaches back that far.

A `Watch` sends the state (ADDED each), its end (BOOKMARK), then changes in order of revision. A change counts for what
the selector saw before and after it: an object that no longer matches is DELETED, one that begins to match is ADDED.

Invariants: `revision` never goes back and no two changes share one; an object's `resourceVersion` is the revision of
its last change; the mirror equals the file, but for defaults that a newer schema adds; every change with a revision
above `oldest` is in the history. Called by `operations` and `routes`, on the event loop.
"""

import asyncio
import json
import sqlite3
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from headrace.dev.api.kinds import ResourceKind
from headrace.dev.api.listing import Selection
from headrace.dev.api.objects import GroupResource, Key, Object, to_json
from headrace.dev.api.status import expired

DEV_WATCH_HISTORY_MAX = 4096
DEV_WATCH_HISTORY_BYTES_MAX = 8 << 20
"""The size of the changes of one resource that watchers may still ask for; older ones are answered with 410."""
_UNSYNCED = frozenset({GroupResource("coordination.k8s.io", "leases"), GroupResource("", "events")})
_IN_MEMORY = ":memory:"
_MODE = 0o600
"""The mode of its files, private to the owner: there are Secrets in them."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (
  api_group TEXT NOT NULL, plural TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, body TEXT NOT NULL,
  PRIMARY KEY (api_group, plural, namespace, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counter (id INTEGER PRIMARY KEY CHECK (id = 0), revision INTEGER NOT NULL);
"""
_STATE_END = {"k8s.io/initial-events-end": "true"}


class ChangeType(StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class ObjectChange:
    revision: int
    type: ChangeType
    object: Object
    """The object as it is now; a deleted object in its last state, with the revision of the deletion."""
    previous: Object | None = None
    """The object as it was before: a selector may have matched it then."""
    size_bytes: int = 0
    """The size of the object in JSON, which counts against the history's bound."""


class ResourceHistory:
    """The changes of one resource."""

    def __init__(
        self, oldest: int, changes_max: int = DEV_WATCH_HISTORY_MAX, bytes_max: int = DEV_WATCH_HISTORY_BYTES_MAX
    ) -> None:
        self.oldest = oldest
        """The revision up to which, itself included, changes are forgotten."""
        self._changes_max = changes_max
        self._bytes_max = bytes_max
        self._changes: list[ObjectChange] = []
        self._bytes = 0

    def record(self, change: ObjectChange) -> None:
        self._changes.append(change)
        self._bytes += change.size_bytes
        if len(self._changes) > self._changes_max or self._bytes > self._bytes_max:
            self._forget_half()

    def _forget_half(self) -> None:
        """Forget half of the changes, not one: dropping the first element of a list for each change would copy it each
        time."""
        # The newest change always stays, whatever its size.
        forgotten = self._changes[: max(len(self._changes) // 2, 1)] if len(self._changes) > 1 else []
        if forgotten:
            self.oldest = forgotten[-1].revision
            self._bytes -= sum(change.size_bytes for change in forgotten)
            del self._changes[: len(forgotten)]

    def since(self, revision: int) -> list[ObjectChange]:
        """Return the changes after `revision`. Raises StatusError 410 when some of them are forgotten."""
        if revision < self.oldest:
            raise expired(revision, self.oldest)
        first = bisect_right(self._changes, revision, key=lambda change: change.revision)
        return self._changes[first:]


class History:
    """The changes of all resources, and the watchers to wake when one comes."""

    def __init__(self, oldest: int) -> None:
        self._oldest = oldest
        self._resources: dict[GroupResource, ResourceHistory] = {}
        self._watchers: dict[asyncio.Event, GroupResource | None] = {}
        self.closed = False

    def of(self, resource: GroupResource) -> ResourceHistory:
        return self._resources.setdefault(resource, ResourceHistory(self._oldest))

    def record(self, resource: GroupResource, change: ObjectChange) -> None:
        self.of(resource).record(change)
        for wake, wanted in self._watchers.items():
            if wanted is None or wanted == resource:
                wake.set()

    @contextmanager
    def watching(self, resource: GroupResource | None) -> Iterator[asyncio.Event]:
        """Yield an event that is set with each change of `resource` (None: of any), and when the history closes."""
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


def _keep_private(path: Path) -> None:
    """Make files private: those of an earlier version may be readable by all. SQLite makes its other files like the
    first one."""
    path.touch(mode=_MODE)
    for each in (path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))):
        if each.exists():
            each.chmod(_MODE)


class Store:
    def __init__(self, path: Path | str, first_revision: int = 1) -> None:
        """Open or create the file; raises sqlite3.Error where it is locked by another server or is no database.

        A new file begins to count at `first_revision`. It should be higher than what clients remember from an earlier
        file, so that they get an error for their old revisions rather than wait for numbers that are far off.
        """
        if path != _IN_MEMORY:
            _keep_private(Path(path))
        self._database = sqlite3.connect(path, isolation_level=None, timeout=1)
        for pragma in ("locking_mode=EXCLUSIVE", "journal_mode=WAL"):
            self._database.execute(f"PRAGMA {pragma}")
        self._database.executescript(_SCHEMA)
        self._database.execute("INSERT OR IGNORE INTO counter VALUES (0, ?)", (first_revision,))
        self.revision: int = self._database.execute("SELECT revision FROM counter").fetchone()[0]
        self._objects: dict[GroupResource, dict[Key, Object]] = {}
        self._keys_by_uid: dict[str, Key] = {}
        for group, plural, namespace, name, body in self._database.execute("SELECT * FROM objects"):
            self._mirror(Key(GroupResource(group, plural), namespace, name), json.loads(body))
        self.history = History(self.revision)

    def get(self, key: Key) -> Object | None:
        return self._objects.get(key.resource, {}).get(key)

    def list(self, resource: GroupResource, namespace: str | None = None) -> list[Object]:
        """Return objects in order of namespace and name; `namespace` None means all."""
        keys = sorted(k for k in self._objects.get(resource, {}) if namespace is None or k.namespace == namespace)
        return [self._objects[resource][key] for key in keys]

    def all_keys(self) -> Iterator[Key]:
        for objects in self._objects.values():
            yield from objects

    def key_of_uid(self, uid: str) -> Key | None:
        return self._keys_by_uid.get(uid)

    def put(self, key: Key, obj: Object) -> Object:
        """Write `obj`, set its resourceVersion, and wake the watchers. The store owns it from now on."""
        previous = self.get(key)
        revision = self.revision + 1
        obj["metadata"]["resourceVersion"] = str(revision)
        body = to_json(obj)
        row = (key.resource.group, key.resource.plural, key.namespace, key.name, body)
        self._commit("INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?)", row, key)
        self._mirror(key, obj)
        change_type = ChangeType.ADDED if previous is None else ChangeType.MODIFIED
        self.history.record(key.resource, ObjectChange(revision, change_type, obj, previous, len(body)))
        return obj

    def complete(self, key: Key, obj: Object) -> None:
        """Show `obj` in place of the stored object at `key`: the same version, with additions for readers."""
        self._mirror(key, obj)

    def remove(self, key: Key) -> None:
        """Remove the object at `key`, which must be there; watchers see its last state with a revision of its own."""
        previous = self._objects[key.resource][key]
        revision = self.revision + 1
        row = (key.resource.group, key.resource.plural, key.namespace, key.name)
        where = "api_group = ? AND plural = ? AND namespace = ? AND name = ?"
        self._commit(f"DELETE FROM objects WHERE {where}", row, key)
        del self._objects[key.resource][key]
        self._keys_by_uid.pop(previous["metadata"]["uid"], None)
        last = previous | {"metadata": previous["metadata"] | {"resourceVersion": str(revision)}}
        self.history.record(key.resource, ObjectChange(revision, ChangeType.DELETED, last, previous))

    def close(self) -> None:
        self.history.close()
        self._database.close()

    def _commit(self, statement: str, row: tuple[str, ...], key: Key) -> None:
        """Run `statement` as the next revision. In WAL mode NORMAL commits without a sync; FULL syncs all until now."""
        self._database.execute(f"PRAGMA synchronous={'NORMAL' if key.resource in _UNSYNCED else 'FULL'}")
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.execute(statement, row)
            self._database.execute("UPDATE counter SET revision = ?", (self.revision + 1,))
        self.revision += 1

    def _mirror(self, key: Key, obj: Object) -> None:
        self._objects.setdefault(key.resource, {})[key] = obj
        self._keys_by_uid[obj["metadata"]["uid"]] = key


@dataclass(frozen=True, slots=True)
class WatchOptions:
    selection: Selection
    starts_with_state: bool
    marks_state_end: bool
    """True: a bookmark follows the state, so that the client knows that it has all of it."""
    after: int
    """The revision that the client has seen; 0 where the state comes first."""
    bookmarks: bool
    timeout_s: int


@dataclass(frozen=True, slots=True)
class WatchEvent:
    type: str
    object: Object


class Watch:
    def __init__(self, store: Store, kind: ResourceKind, namespace: str | None, options: WatchOptions) -> None:
        self._store = store
        self._kind = kind
        self._namespace = namespace
        self._options = options
        self.timeout_s = options.timeout_s
        self.bookmarks = options.bookmarks
        self.revision = options.after

    def waking(self) -> AbstractContextManager[asyncio.Event]:
        """Return an event that is set when something may be pending, or the watch has to end."""
        return self._store.history.watching(self._kind.storage)

    @property
    def closed(self) -> bool:
        """Return whether the server stops."""
        return self._store.history.closed

    def state(self) -> Iterator[WatchEvent]:
        """Yield the present state first, where it is asked for. Call it once, before `pending`."""
        if not self._options.starts_with_state:
            return
        self.revision = self._store.revision  # An earlier revision would repeat changes that are part of this state.
        for obj in self._store.list(self._kind.storage, self._namespace):
            if self._options.selection.matches(obj):
                yield WatchEvent(ChangeType.ADDED, self._kind.from_stored(obj))
        if self._options.marks_state_end and self._options.bookmarks:
            yield self._bookmark(_STATE_END)

    def pending(self) -> list[WatchEvent]:
        """Return what has happened since the last call. Raises StatusError 410 when the history has forgotten some of
        it."""
        changes = self._store.history.of(self._kind.storage).since(self.revision)
        self.revision = max(self.revision, self._store.revision)
        seen = (self._seen(change) for change in changes if self._is_here(change))
        return [event for event in seen if event is not None]

    def bookmark(self) -> WatchEvent:
        """Return how far this watch has come, for a client that wants to continue from here. Only with nothing
        pending."""
        return self._bookmark({})

    def _is_here(self, change: ObjectChange) -> bool:
        return self._namespace is None or change.object["metadata"].get("namespace", "") == self._namespace

    def _seen(self, change: ObjectChange) -> WatchEvent | None:
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
