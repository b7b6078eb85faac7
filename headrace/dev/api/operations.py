"""The operations of the API on its store: create, get, list, replace, patch, delete.

The module owns the catalog of kinds and keeps it in step with the CustomResourceDefinitions in the store. Every
operation is synchronous: between the check of a resourceVersion and the write nothing else can run. Every refusal is a
StatusError. Called by the HTTP shell and by `collector`.
"""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any

from headrace.dev.api.builtin import BUILTIN_KINDS, DEFINITIONS, NAMESPACES, PODS, SERVICES
from headrace.dev.api.definitions import kinds_of, resource_of
from headrace.dev.api.documents import Document
from headrace.dev.api.kinds import KindCatalog, ResourceKind
from headrace.dev.api.listing import ListOptions, ListPage, Selection, page_of
from headrace.dev.api.managed_fields import Author, stamped, updated
from headrace.dev.api.object_meta import finalizer_warnings
from headrace.dev.api.objects import Key, Object, copy_of, in_order, rfc3339
from headrace.dev.api.patches import apply_patch
from headrace.dev.api.pods import read_scale, scale_of, with_scale
from headrace.dev.api.schemas import fill_defaults, shape_of
from headrace.dev.api.server_side_apply import (
    apply,
    check_new,
    duplicate_warnings,
    read_applied,
    read_applied_scale,
    read_merged,
)
from headrace.dev.api.status import (
    Cause,
    StatusError,
    UndecodableError,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    modified,
    not_found,
    success,
    too_large,
    undecodable_patch,
)
from headrace.dev.api.store import Store
from headrace.dev.api.strategy import (
    ApiWriteOptions,
    DeleteOptions,
    WriteResult,
    check_deletable,
    doomed,
    may_go,
    prepare_create,
    prepare_status_update,
    prepare_update,
    read_object,
    unreadable,
)

_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5


@dataclass(frozen=True, slots=True)
class RequestTarget:
    """The object or collection of a request."""

    kind: ResourceKind
    namespace: str
    name: str
    subresource: str = ""

    @property
    def key(self) -> Key:
        return Key(self.kind.storage, self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class _Change:
    """The object that a writer asks for, in the form of its kind."""

    object: Object
    warnings: tuple[str, ...] = ()
    managed: list[Object] | None = None
    """The managedFields that an apply leads to; those of other writes follow from what they change."""


class Operations:
    def __init__(self, store: Store, now: Callable[[], datetime] | None = None, random: Random | None = None) -> None:
        self.store = store
        self.catalog = KindCatalog(BUILTIN_KINDS)
        self.now = now or (lambda: datetime.now(UTC))
        self._random = random or Random()
        for definition in store.list(DEFINITIONS):
            self._serve(definition)

    def get(self, target: RequestTarget) -> Object:
        current = self._current(target)
        return scale_of(current) if target.subresource == "scale" else target.kind.from_stored(current)

    def list(self, kind: ResourceKind, namespace: str | None, options: ListOptions) -> ListPage:
        """Return one page of the objects that match; `namespace` None means all namespaces."""
        revision = self.store.revision
        if options.not_older_than > revision:
            raise too_large(options.not_older_than, revision)
        page = page_of(self.store.list(kind.storage, namespace), revision, options)
        return ListPage([kind.from_stored(obj) for obj in page.objects], page.revision, page.rest, page.remaining)

    def create(self, kind: ResourceKind, namespace: str, document: Document, options: ApiWriteOptions) -> WriteResult:
        try:
            obj, warnings = read_object(kind, document, options.validation)
        except UndecodableError as error:
            raise unreadable(kind, error) from error
        meta = obj["metadata"]
        if meta.pop("resourceVersion", None) is not None:
            raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
        _place_in(meta, namespace)
        if "name" not in meta and "generateName" in meta:
            meta["name"] = meta["generateName"] + self._suffix()
        return self._insert(RequestTarget(kind, namespace, meta.get("name", "")), _Change(obj, warnings), options)

    def replace(self, target: RequestTarget, document: Document, options: ApiWriteOptions) -> WriteResult:
        if target.kind.create_on_update and self.store.get(target.key) is None:
            return self._create_by_replace(target, document, options)
        current = self._current(target)
        if target.subresource == "scale":
            return self._write_scale(target, current, document.value, options)
        try:
            obj, warnings = read_object(target.kind, document, options.validation)
        except UndecodableError as error:
            raise unreadable(target.kind, error) from error
        _check_identity(target, obj["metadata"])
        self._check_version(target, obj["metadata"], current)
        return self._write(target, _Change(obj, warnings), current, options)

    def patch(
        self, target: RequestTarget, media_type: str, document: Document, options: ApiWriteOptions
    ) -> WriteResult:
        current = self._current(target)
        if target.subresource == "scale":
            patched = apply_patch(media_type, scale_of(current), document.value)
            return self._write_scale(target, current, patched, options)
        patched = apply_patch(media_type, target.kind.from_stored(current), document.value)
        try:
            obj, warnings = read_object(
                target.kind, Document(copy_of(patched), document.duplicates), options.validation
            )
        except UndecodableError as error:
            shown = patched if target.kind.schema is None else in_order(patched)
            raise undecodable_patch(shown, str(error)) from error
        _check_latest(target, obj["metadata"], current)
        return self._write(target, _Change(obj, warnings), current, options)

    def apply(self, target: RequestTarget, document: Document, options: ApiWriteOptions) -> WriteResult:
        """Apply on the server's side: a partial object, whose fields from now on belong to `options.manager`."""
        if target.subresource == "scale":
            return self._apply_scale(target, document, options)
        kind, patch = target.kind, read_applied(target.kind, document)
        current = self._current(target) if target.subresource else self.store.get(target.key)
        if current is None:
            check_new(kind, target.name, patch)
        applied = apply(self._author(target, options), current, kind.to_stored(copy_of(patch)), force=options.force)
        try:
            obj = read_merged(kind, kind.from_stored(applied.object))
        except UndecodableError as error:
            raise unreadable(kind, error) from error
        change = _Change(obj, duplicate_warnings(document, options.validation), applied.managed)
        if current is None:
            _check_identity(target, obj["metadata"])
            return self._insert(target, change, options)
        _check_latest(target, obj["metadata"], current)
        return self._write(target, change, current, options)

    def delete(self, target: RequestTarget, options: DeleteOptions) -> Object:
        """Delete, and return the object as it now is where something still holds it, else a Status that says
        success."""
        current = self._current(target)
        check_deletable(target.kind, current, options)
        marked = doomed(target.kind, current, options, self.now())
        if may_go(marked):
            if not options.dry_run:
                self._remove(target.key)
            if target.kind.resource == PODS:
                return marked
            if target.kind.resource == SERVICES:
                return current
            return success(target.kind.resource, target.name, current["metadata"]["uid"])
        if marked != current and not options.dry_run:
            marked = self._put(target.key, marked)
        return target.kind.from_stored(marked)

    def delete_collection(
        self, kind: ResourceKind, namespace: str | None, selection: Selection, options: DeleteOptions
    ) -> ListPage:
        listing = self.list(kind, namespace, ListOptions(selection))
        for obj in listing.objects:
            meta = obj["metadata"]
            self.delete(RequestTarget(kind, meta.get("namespace", ""), meta["name"]), options)
        return listing

    def settle(self, key: Key, obj: Object) -> Object:
        """Store `obj`, a changed copy of what is at `key`; remove it where nothing holds a deleted object any more."""
        if may_go(obj):
            self._remove(key)
            return obj
        return self._put(key, obj)

    def _author(self, target: RequestTarget, options: ApiWriteOptions) -> Author:
        kind = target.kind if target.kind.stored_as is None else self.catalog.of_resource(target.kind.storage)
        assert kind is not None, "what a view shows is served, too"
        return Author(
            name=options.manager,
            api_version=kind.api_version,
            subresource=target.subresource,
            shape=shape_of(kind.kind, kind.shape),
            is_custom=kind.schema is not None,
            keeps_status_apart="status" in kind.subresources,
            # A Scale has no managedFields of its own, so those of the scaled object get no new time.
            time=rfc3339(self.now()) if target.subresource != "scale" else "",
        )

    def _current(self, target: RequestTarget) -> Object:
        current = self.store.get(target.key)
        known = not target.subresource or target.subresource in target.kind.subresources
        if current is None or not known:
            raise not_found(target.kind.resource, target.name)
        return current

    def _create_by_replace(self, target: RequestTarget, document: Document, options: ApiWriteOptions) -> WriteResult:
        if isinstance(document.value, dict) and isinstance(document.value.get("metadata"), dict):
            _check_identity(target, document.value["metadata"])
            document.value["metadata"].pop("resourceVersion", None)
        return self.create(target.kind, target.namespace, document, options)

    def _insert(self, target: RequestTarget, change: _Change, options: ApiWriteOptions) -> WriteResult:
        kind = target.kind
        self._check_namespace(target)
        obj = prepare_create(kind, kind.to_stored(change.object), str(uuid.uuid4()), self.now())
        if self.store.get(target.key) is not None:
            raise already_exists(kind.resource, target.name)
        managed = change.managed
        if managed is None:
            managed = updated(self._author(target, options), None, obj, None)
        obj = stamped(obj, {"metadata": {}}, managed)
        stored = obj if options.dry_run else self._put(target.key, obj)
        return WriteResult(kind.from_stored(stored), (*change.warnings, *_warnings(kind, stored, {})), created=True)

    def _write(self, target: RequestTarget, change: _Change, current: Object, options: ApiWriteOptions) -> WriteResult:
        obj = target.kind.to_stored(change.object)
        said = obj["metadata"].pop("managedFields", None)
        prepare = prepare_status_update if target.subresource == "status" else prepare_update
        prepared = prepare(target.kind, obj, current, self.now())
        managed = change.managed
        if managed is None:
            managed = updated(self._author(target, options), current, prepared, said)
        written = stamped(prepared, current, managed)
        # A write that changes nothing is no change: no new resourceVersion, nothing for watchers.
        if written is not current and not options.dry_run:
            written = self.settle(target.key, written)
        warnings = (*change.warnings, *_warnings(target.kind, written, current))
        return WriteResult(target.kind.from_stored(written), warnings)

    def _write_scale(self, target: RequestTarget, current: Object, body: Any, options: ApiWriteOptions) -> WriteResult:
        scale = read_scale(body)
        version = (scale.get("metadata") or {}).get("resourceVersion")
        if version not in (None, "", current["metadata"]["resourceVersion"]):
            raise modified(target.kind.resource, target.name)
        written = self._write(target, _Change(copy_of(with_scale(current, scale))), current, options)
        return WriteResult(scale_of(written.object))

    def _apply_scale(self, target: RequestTarget, document: Document, options: ApiWriteOptions) -> WriteResult:
        current = self._current(target)
        patch = read_applied(target.kind, read_applied_scale(target.kind, document))
        applied = apply(self._author(target, options), current, patch, force=options.force)
        scaled = copy_of(with_scale(current, applied.object))
        written = self._write(target, _Change(scaled, managed=applied.managed), current, options)
        return WriteResult(scale_of(written.object))

    def _check_version(self, target: RequestTarget, meta: Object, current: Object) -> None:
        """Check that the writer has read the latest version of the same object."""
        version, found = meta.get("resourceVersion"), current["metadata"]
        if version is None and not target.kind.unconditional_update:
            cause = Cause(
                "FieldValueInvalid", "Invalid value: 0: must be specified for an update", "metadata.resourceVersion"
            )
            raise invalid(target.kind.resource, target.name, [cause])
        if meta.get("uid", found["uid"]) != found["uid"]:
            why = f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {found['uid']}"
            raise conflict(target.kind.resource, target.name, why)
        if version is not None and version != found["resourceVersion"]:
            raise modified(target.kind.resource, target.name)

    def _check_namespace(self, target: RequestTarget) -> None:
        """Check that the namespace exists and stays: objects are created only in such."""
        if not target.kind.namespaced:
            return
        namespace = self.store.get(Key(NAMESPACES, "", target.namespace))
        if namespace is None:
            raise not_found(NAMESPACES, target.namespace)
        if "deletionTimestamp" in namespace["metadata"]:
            why = f"unable to create new content in namespace {target.namespace} because it is being terminated"
            message = f"namespace {target.namespace} is being terminated"
            cause = Cause("NamespaceTerminating", message, "metadata.namespace")
            raise forbidden(target.kind.resource, target.name, why, cause)

    def _put(self, key: Key, obj: Object) -> Object:
        stored = self.store.put(key, obj)
        if key.resource == DEFINITIONS:
            self._serve(stored)
        return stored

    def _serve(self, definition: Object) -> None:
        """Serve the kinds of `definition`. Objects that are already there show the defaults that it adds."""
        resource, kinds = resource_of(definition), kinds_of(definition)
        self.catalog.replace_group_resource(resource, kinds)
        for obj in self.store.list(resource) if kinds else ():
            completed = copy_of(obj)
            if (schema := kinds[0].schema) is not None:
                fill_defaults(completed, schema)
            if completed != obj:
                meta = obj["metadata"]
                self.store.complete(Key(resource, meta.get("namespace", ""), meta["name"]), completed)

    def _remove(self, key: Key) -> None:
        if key.resource == DEFINITIONS and (definition := self.store.get(key)) is not None:
            self.catalog.replace_group_resource(resource_of(definition), ())
        self.store.remove(key)

    def _suffix(self) -> str:
        return "".join(self._random.choices(_SUFFIX_ALPHABET, k=_SUFFIX_LENGTH))


def _warnings(kind: ResourceKind, obj: Object, old: Object) -> Iterator[str]:
    """Yield Kubernetes' warnings about custom resources, beside those about their fields."""
    return finalizer_warnings(obj["metadata"], old.get("metadata", {})) if kind.schema is not None else iter(())


def _place_in(meta: Object, namespace: str) -> None:
    """Place an object in the namespace of the request; one that names another is refused."""
    if meta.get("namespace", namespace) != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    if namespace:
        meta["namespace"] = namespace


def _check_identity(target: RequestTarget, meta: Object) -> None:
    name = meta.setdefault("name", target.name)
    if name != target.name:
        raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({target.name})")
    _place_in(meta, target.namespace)


def _check_latest(target: RequestTarget, meta: Object, current: Object) -> None:
    """Check a patch that names a version, which means the latest one."""
    _check_identity(target, meta)
    latest = current["metadata"]["resourceVersion"]
    if meta.get("resourceVersion", latest) != latest:
        raise modified(target.kind.resource, target.name)
