"""RFC 9457 problem documents: how an error crosses HTTP, and comes out as the same class on the other side.

{"type": "https://headrace.io/problems/NotLeader", "title": "Not leader", "status": 421, "code": "NotLeader",
 "detail": "broker 1 does not lead flights/3; broker 2 does", "retriable": true, "leader": 2}
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from headrace.core.errors import BrokerUnreachableError, HeadraceError, RemoteError

CONTENT_TYPE = "application/problem+json"
_OWN_MEMBERS = frozenset({"type", "title", "status", "code", "detail", "retriable"})
_AWAY = frozenset({429, 500, 502, 503, 504})
"""What a proxy answers while nobody is behind it, or nobody has time."""


def to_problem(error: HeadraceError) -> dict[str, Any]:
    """The problem document of `error`; its `details` become members of it."""
    title = re.sub(r"(?<!^)(?=[A-Z])", " ", error.code).capitalize()
    return {
        "type": f"https://headrace.io/problems/{error.code}",
        "title": title,
        "status": error.status,
        "code": error.code,
        "detail": error.message,
        "retriable": error.retriable,
        **error.details,
    }


def from_problem(document: Mapping[str, Any], status: int) -> HeadraceError:
    """The error that `document` describes; a `RemoteError` that keeps status and code where the code is not known."""
    if document.get("kind") == "Status":
        return _from_kubernetes(document, status)
    detail = str(document.get("detail") or document.get("title") or f"HTTP {status}")
    details = {name: value for name, value in document.items() if name not in _OWN_MEMBERS and name.isidentifier()}
    known = _BY_CODE.get(str(document.get("code")))
    if known is None:
        return RemoteError(f"HTTP {status}: {detail}", **details)
    return known(detail, **details)


def _from_kubernetes(answer: Mapping[str, Any], status: int) -> HeadraceError:
    """Of the API server's own answer, where brokers are reached through its proxy."""
    said = f"the Kubernetes API server, which stands between, says HTTP {status}: {answer.get('message') or 'no more'}"
    return BrokerUnreachableError(said, unprocessed=False) if status in _AWAY else RemoteError(said)


def _subclasses(root: type[HeadraceError]) -> Iterator[type[HeadraceError]]:
    for subclass in root.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


_BY_CODE = {error.code: error for error in _subclasses(HeadraceError)}
