"""State on disk: every object, and the one counter that numbers all changes.

Owns a SQLite file in WAL mode and a mirror of it in memory, from which all reads are served. A write is one transaction
of the object and the counter, committed before anybody can see it, so that neither is ever behind the other after a
kill -9. It is also synced to the disk, unless it is a sign of life or a record of the moment (Lease, Event): these are
most of the writes, and a power failure that takes the last of them takes nothing that anybody relies on.

Invariants: `revision` never goes back and no two changes share one; an object's `resourceVersion` is the revision of
its last change; the mirror equals the file, but for defaults that a newer schema adds. Called by `operations` and
`collector`, on the event loop.
"""

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from headrace.dev.api.history import Change, ChangeType, History
from headrace.dev.api.objects import GroupResource, Key, Object, to_json

_UNSYNCED = frozenset({GroupResource("coordination.k8s.io", "leases"), GroupResource("", "events")})
_IN_MEMORY = ":memory:"
_MODE = 0o600
"""Its owner's alone: there are Secrets in it."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (
  api_group TEXT NOT NULL, plural TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, body TEXT NOT NULL,
  PRIMARY KEY (api_group, plural, namespace, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counter (id INTEGER PRIMARY KEY CHECK (id = 0), revision INTEGER NOT NULL);
"""


def _keep_private(path: Path) -> None:
    """Those of an earlier version may be anybody's to read. SQLite makes its other files as the first one is."""
    path.touch(mode=_MODE)
    for each in (path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))):
        if each.exists():
            each.chmod(_MODE)


class Store:
    def __init__(self, path: Path | str, first_revision: int = 1) -> None:
        """Open or create the file; raises sqlite3.Error where it is locked by another server or is no database.

        A new file begins to count at `first_revision`. The higher it is than what clients remember from an earlier
        file, the surer they are told that they are too late, rather than wait for numbers that are long to come.
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
        """Objects in order of namespace and name; `namespace` None means all."""
        keys = sorted(k for k in self._objects.get(resource, {}) if namespace is None or k.namespace == namespace)
        return [self._objects[resource][key] for key in keys]

    def all_keys(self) -> Iterator[Key]:
        for objects in self._objects.values():
            yield from objects

    def key_of_uid(self, uid: str) -> Key | None:
        return self._keys_by_uid.get(uid)

    def put(self, key: Key, obj: Object) -> Object:
        """Write `obj`, give it its resourceVersion, tell the watchers. The store owns it from now on."""
        previous = self.get(key)
        revision = self.revision + 1
        obj["metadata"]["resourceVersion"] = str(revision)
        body = to_json(obj)
        row = (key.resource.group, key.resource.plural, key.namespace, key.name, body)
        self._commit("INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?)", row, key)
        self._mirror(key, obj)
        change_type = ChangeType.ADDED if previous is None else ChangeType.MODIFIED
        self.history.record(key.resource, Change(revision, change_type, obj, previous, len(body)))
        return obj

    def complete(self, key: Key, obj: Object) -> None:
        """Show `obj` for what is stored at `key`: the same version, with what readers are to see besides."""
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
        self.history.record(key.resource, Change(revision, ChangeType.DELETED, last, previous))

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
