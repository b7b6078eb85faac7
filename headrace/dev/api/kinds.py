"""The facts about a kind: its names, its columns, and the two or three ways in which kinds differ.

A `ResourceKind` is made from a CustomResourceDefinition (`definitions`) or stands in `builtin`. The `KindCatalog` holds
those that are served; custom ones come and go with their definitions.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from headrace.dev.api.objects import GroupResource, Object, api_version
from headrace.dev.api.schemas import Schema, Shape
from headrace.dev.api.typed_members import read_outline


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column of a Table. `cell` returns its value for an object at a moment."""

    name: str
    type: str
    description: str
    cell: Callable[[Object, datetime], Any]
    priority: int = 0
    """The priority; above 0 the column is shown by `-o wide` alone."""
    format: str = ""


def _keep(obj: Object, old: Object | None, now: datetime) -> None:
    """Leave the object as it is: the server adds nothing to this kind."""


def _same(obj: Object) -> Object:
    return obj


@dataclass(frozen=True, slots=True)
class ResourceKind:
    group: str
    version: str
    kind: str
    plural: str
    singular: str
    columns: tuple[TableColumn, ...]
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: frozenset[str] = frozenset()
    schema: Schema | None = None
    """The structural schema of a custom resource; None for the kinds that Kubernetes itself defines."""
    shape: Shape | None = None
    """The rules by which parts of a custom resource are merged; None for the kinds that Kubernetes itself defines."""
    description: str = ""
    counts_generations: bool = True
    unconditional_update: bool = False
    """True where a PUT without resourceVersion is accepted. Custom resources and Leases refuse it."""
    create_on_update: bool = False
    """True where a PUT of an object that is not there creates it."""
    name_is_label: bool = False
    """True where names are DNS labels, not subdomains."""
    fields: frozenset[str] = frozenset()
    """The fields that field selectors may use besides name and namespace."""
    read: Callable[[Object], list[str]] = read_outline
    """A function that brings the members of a written object into the form that is stored, and returns the paths of
    unknown ones, removed. Only for kinds without a schema. Raises UndecodableError."""
    complete: Callable[[Object, Object | None, datetime], None] = _keep
    """A function that adds what the server adds to a written object; the second argument is the old one, None on
    create. Raises StatusError."""
    stored_as: GroupResource | None = None
    """The resource under which the objects are stored, when this kind is another view of them."""
    to_stored: Callable[[Object], Object] = _same
    from_stored: Callable[[Object], Object] = _same

    @property
    def resource(self) -> GroupResource:
        return GroupResource(self.group, self.plural)

    @property
    def storage(self) -> GroupResource:
        return self.stored_as or self.resource

    @property
    def qualified(self) -> GroupResource:
        """Return the kind with its group, as error messages name it: `Topic.headrace.io`."""
        return GroupResource(self.group, self.kind)

    @property
    def api_version(self) -> str:
        return api_version(self.group, self.version)

    @property
    def list_kind(self) -> str:
        return f"{self.kind}List"

    @property
    def selectable(self) -> frozenset[str]:
        return self.fields | {"metadata.name", "metadata.namespace"}


class KindCatalog:
    """The kinds that are served, by (group, version, plural)."""

    def __init__(self, builtin: tuple[ResourceKind, ...]) -> None:
        self._kinds = {(k.group, k.version, k.plural): k for k in builtin}

    def __iter__(self) -> Iterator[ResourceKind]:
        return iter(self._kinds.values())

    def find(self, group: str, version: str, plural: str) -> ResourceKind | None:
        return self._kinds.get((group, version, plural))

    def of_kind(self, version: str, kind: str) -> ResourceKind | None:
        """Return the kind with the `apiVersion` and `kind` that objects carry."""
        return next((k for k in self if k.api_version == version and k.kind == kind), None)

    def of_resource(self, resource: GroupResource) -> ResourceKind | None:
        """Return the kind whose objects are stored under `resource`."""
        return next((k for k in self if k.resource == resource), None)

    def replace_group_resource(self, resource: GroupResource, kinds: tuple[ResourceKind, ...]) -> None:
        """Serve `kinds`, one for each version, in place of what was served for `resource`."""
        self._kinds = {at: kind for at, kind in self._kinds.items() if kind.resource != resource}
        self._kinds.update({(k.group, k.version, k.plural): k for k in kinds})
