"""The parts of a request, parsed once: its path, its query parameters, its `Accept` header, the body of a delete. Pure.

    /apis/headrace.io/v1alpha1/namespaces/default/topics/flights   an `Address`
    ?labelSelector=..., ?watch=true, ?dryRun=All                   options of lists, watches, writes and deletes
    Accept: application/json;as=Table;g=meta.k8s.io;v=v1           a `Representation` that this API writes

Raises StatusError where Kubernetes would. Called by `routes`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from headrace.dev.api.documents import Document
from headrace.dev.api.kinds import ResourceKind
from headrace.dev.api.listing import ListOptions, Selection, parse_fields, parse_labels
from headrace.dev.api.status import (
    Cause,
    StatusError,
    bad_request,
    forbidden_value,
    invalid_options,
    invalid_value,
    not_acceptable,
    required,
    unsupported_value,
)
from headrace.dev.api.store import WatchOptions
from headrace.dev.api.strategy import ApiWriteOptions, DeleteOptions, FieldValidation, Propagation

DEV_MANAGER_NAME_BYTES_MAX = 128
"""The longest name of a manager, as in a kube-apiserver."""
DEV_WATCH_TIMEOUT_S = 1_800
"""The time after which a watch without `timeoutSeconds` ends, so that clients list again now and then."""


_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})
_OFFERED = ("application/json", "application/yaml")
Query = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Address:
    group: str
    version: str
    plural: str
    namespace: str | None = None
    """The namespace; None: the path names none, so a list goes over all namespaces."""
    name: str = ""
    """The name; empty: the whole collection."""
    subresource: str = ""


def parse_address(path: str) -> Address | None:
    """Parse a path; None where it is not a resource's."""
    match path.strip("/").split("/"):
        case ["api", version, *rest]:
            return _address("", version, rest)
        case ["apis", group, version, *rest]:
            return _address(group, version, rest)
        case _:
            return None


def _address(group: str, version: str, rest: list[str]) -> Address | None:
    match rest:
        case ["namespaces", name, subresource] if subresource in _NAMESPACE_SUBRESOURCES:
            return Address(group, version, "namespaces", None, name, subresource)
        case ["namespaces", namespace, plural, *below] if len(below) <= 2:
            return Address(group, version, plural, namespace, *below)
        case [plural, *below] if len(below) <= 2:
            return Address(group, version, plural, None, *below)
        case _:
            return None


class Form(Enum):
    """The shape of an answer."""

    OBJECT = "object"
    TABLE = "Table"
    PARTIAL = "PartialObjectMetadata"
    DISCOVERY = "APIGroupDiscoveryList"


@dataclass(frozen=True, slots=True)
class Representation:
    form: Form
    media_type: str
    """The value of Content-Type."""
    as_yaml: bool = False


_JSON = Representation(Form.OBJECT, "application/json")
_YAML = Representation(Form.OBJECT, "application/yaml", as_yaml=True)
_FORMS = {
    ("Table", "meta.k8s.io", "v1"): Form.TABLE,
    ("PartialObjectMetadata", "meta.k8s.io", "v1"): Form.PARTIAL,
    ("PartialObjectMetadataList", "meta.k8s.io", "v1"): Form.PARTIAL,
    ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2"): Form.DISCOVERY,
}


def negotiate(accept: str) -> Representation:
    """Return the first form in `accept` that this API writes. Raises StatusError 406 where there is none."""
    for wanted in accept.split(",") if accept else ["*/*"]:
        media_type, *parameters = (part.strip() for part in wanted.split(";"))
        found = _representation(media_type, dict(p.split("=", 1) for p in parameters if "=" in p))
        if found is not None:
            return found
    raise not_acceptable(_OFFERED)


def _representation(media_type: str, parameters: dict[str, str]) -> Representation | None:
    if media_type == "application/yaml" and "as" not in parameters:
        return _YAML
    if media_type not in ("application/json", "*/*", "application/*"):
        return None
    if "as" not in parameters:
        return _JSON
    shape = (parameters["as"], parameters.get("g", ""), parameters.get("v", ""))
    form = _FORMS.get(shape)
    if form is None:
        return None
    if form is Form.DISCOVERY:
        return Representation(form, f"application/json;g={shape[1]};v={shape[2]};as={shape[0]}")
    return Representation(form, "application/json")


def read_selection(query: Query, kind: ResourceKind) -> Selection:
    labels = parse_labels(query.get("labelSelector", ""))
    return Selection(labels, parse_fields(query.get("fieldSelector", ""), kind.selectable))


def read_list_options(query: Query, kind: ResourceKind) -> ListOptions:
    selection = read_selection(query, kind)
    limit = _whole_number(query, "limit", 0)
    if causes := _list_causes(query):
        raise invalid_options("ListOptions", *causes)
    try:
        not_older_than = _resource_version(query)
    except StatusError as error:
        raise bad_request(f"invalid resource version: {error.message}") from error
    return ListOptions(selection, limit, query.get("continue", ""), not_older_than)


def _list_causes(query: Query) -> list[Cause]:
    """Return what is wrong with the parameters of a list, taken together."""
    if "sendInitialEvents" in query:
        return [forbidden_value("sendInitialEvents", "sendInitialEvents is forbidden for list")]
    match, version = query.get("resourceVersionMatch", ""), query.get("resourceVersion", "")
    causes = []
    if match and not version:
        rule = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        causes.append(forbidden_value("resourceVersionMatch", rule))
    if match and query.get("continue"):
        rule = "resourceVersionMatch is forbidden when continue is provided"
        causes.append(forbidden_value("resourceVersionMatch", rule))
    if match not in ("", "Exact", "NotOlderThan"):
        causes.append(unsupported_value("resourceVersionMatch", match, ["Exact", "NotOlderThan", ""]))
    if match == "Exact" and version == "0":
        rule = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        causes.append(forbidden_value("resourceVersionMatch", rule))
    return causes


def read_watch_options(query: Query, kind: ResourceKind) -> WatchOptions:
    initial = query.get("sendInitialEvents")
    if initial is not None and query.get("resourceVersionMatch") != "NotOlderThan":
        rule = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        raise _forbidden_option("resourceVersionMatch", rule)
    revision = _resource_version(query)
    return WatchOptions(
        selection=read_selection(query, kind),
        # Without a version to start from, and whenever it is asked for, the present state comes first.
        starts_with_state=_is_true(initial) or (initial is None and revision == 0),
        marks_state_end=_is_true(initial),
        after=revision,
        bookmarks=_is_true(query.get("allowWatchBookmarks")),
        timeout_s=_whole_number(query, "timeoutSeconds", DEV_WATCH_TIMEOUT_S) or DEV_WATCH_TIMEOUT_S,
    )


def is_watch(query: Query) -> bool:
    return _is_true(query.get("watch"))


def read_write_options(
    query: Query, options_kind: str, user_agent: str = "", *, applies: bool = False
) -> ApiWriteOptions:
    """Parse the options of a write. `options_kind` is CreateOptions, UpdateOptions or PatchOptions, for the message.
    `user_agent` is the manager of a write that names none; an apply must name one."""
    manager = query.get("fieldManager", "")
    causes = list(_manager_causes(manager, options_kind, asked_to_force="force" in query, applies=applies))
    if causes:
        raise invalid_options(options_kind, *causes)
    asked = query.get("fieldValidation") or FieldValidation.WARN
    if asked not in list(FieldValidation):
        cause = unsupported_value("fieldValidation", asked, ["", "Ignore", "Strict", "Warn"])
        raise invalid_options(options_kind, cause)
    dry_run = _dry_run(query.get("dryRun"), options_kind)
    named = manager or _manager_of(user_agent)
    return ApiWriteOptions(FieldValidation(asked), dry_run, named, applies and _is_true(query.get("force")))


def _manager_causes(manager: str, options_kind: str, *, asked_to_force: bool, applies: bool) -> Iterator[Cause]:
    if applies and not manager:
        yield required("fieldManager", "is required for apply patch")
    elif options_kind == "PatchOptions" and asked_to_force and not applies:
        yield forbidden_value("force", "may not be specified for non-apply patch")
    if len(manager.encode()) > DEV_MANAGER_NAME_BYTES_MAX:
        rule = f"Too long: may not be more than {DEV_MANAGER_NAME_BYTES_MAX} bytes"
        yield Cause("FieldValueTooLong", rule, "fieldManager")
    for at, character in enumerate(manager):
        if not character.isprintable():
            yield invalid_value("fieldManager", manager, f"invalid character U+{ord(character):04X} (at position {at})")


def _manager_of(user_agent: str) -> str:
    """Return the program's name: the part before the first slash."""
    name = "".join(filter(str.isprintable, user_agent.partition("/")[0]))
    return name.encode()[:DEV_MANAGER_NAME_BYTES_MAX].decode(errors="ignore") or "unknown"


def read_delete_options(query: Query, body: Document | None) -> DeleteOptions:
    """Parse the options of a delete, from the body where there is one, else from the query."""
    said = body.value if body is not None and isinstance(body.value, dict) else {}
    preconditions = said.get("preconditions") or {}
    if not isinstance(preconditions, dict):
        raise bad_request("json: cannot unmarshal preconditions into Go value of type v1.Preconditions")
    grace = said.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
    propagation = said.get("propagationPolicy", query.get("propagationPolicy")) or Propagation.BACKGROUND
    if propagation not in list(Propagation):
        raise invalid_options("DeleteOptions", unsupported_value("propagationPolicy", propagation, list(Propagation)))
    dry_run = said.get("dryRun") or query.get("dryRun")
    return DeleteOptions(
        grace_s=None if grace is None else _parsed(grace),
        propagation=Propagation(propagation),
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
        dry_run=_dry_run(dry_run[0] if isinstance(dry_run, list) else dry_run, "DeleteOptions"),
    )


def _dry_run(asked: str | None, options_kind: str) -> bool:
    if asked not in (None, "", "All"):
        raise invalid_options(options_kind, unsupported_value("dryRun", [asked], ["All"]))
    return asked == "All"


def _is_true(text: str | None) -> bool:
    """Return False for a plain no only, as Kubernetes reads it."""
    return text is not None and text.lower() not in ("false", "0")


def _whole_number(query: Query, name: str, default: int) -> int:
    return _parsed(query[name]) if query.get(name) else default


def _parsed(value: object) -> int:
    try:
        return max(int(str(value)), 0)
    except ValueError as error:
        raise bad_request(f'strconv.ParseInt: parsing "{value}": invalid syntax') from error


def _resource_version(query: Query) -> int:
    text = query.get("resourceVersion") or "0"
    if not text.isdecimal():
        message = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise StatusError(500, "", message)
    return int(text)


def _forbidden_option(field: str, rule: str) -> StatusError:
    return invalid_options("ListOptions", forbidden_value(field, rule))
