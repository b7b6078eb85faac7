"""Lists in pages: a token names the last object of a page; each page reads the state of its own moment. Pure."""

import base64
import binascii
import json
from dataclasses import field

from headrace.core.slotted import dataclass
from headrace.dev.api.objects import Object, to_json
from headrace.dev.api.selectors import Selection
from headrace.dev.api.status import bad_request

_Place = tuple[str, str]
"""(namespace, name)."""


@dataclass(frozen=True, slots=True)
class ListOptions:
    selection: Selection = field(default_factory=Selection)
    limit: int = 0
    """0: all."""
    after: str = ""
    """The `continue` token of the page before."""
    not_older_than: int = 0


@dataclass(frozen=True, slots=True)
class Listing:
    objects: list[Object]
    revision: int
    rest: str = ""
    """The `continue` token of the next page; empty on the last."""
    remaining: int = 0


def page_of(objects: list[Object], revision: int, options: ListOptions) -> Listing:
    """The page of `objects`, sorted by place, that `options` ask for. Raises StatusError 400 for a bad token."""
    found = [obj for obj in objects if options.selection.matches(obj)]
    if options.after:
        start = _read_token(options.after)
        found = [obj for obj in found if _place(obj) > start]
    page = found[: options.limit] if options.limit else found
    rest = _write_token(_place(page[-1])) if len(page) < len(found) else ""
    return Listing(page, revision, rest, len(found) - len(page))


def _place(obj: Object) -> _Place:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _write_token(place: _Place) -> str:
    return base64.urlsafe_b64encode(to_json(place).encode()).decode()


def _read_token(token: str) -> _Place:
    try:
        namespace, name = json.loads(base64.urlsafe_b64decode(token))
    except (binascii.Error, ValueError, TypeError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error
    return str(namespace), str(name)
