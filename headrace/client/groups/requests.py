"""The requests about a group as clients send them, and the meaning of the answers. Pure.

`core.groups.requests` has the bodies. `coordinator_client` sends the requests; `member` reads the answers.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote

from headrace.client.record import GroupOffset
from headrace.client.transport.calls import Answer, Call, parse_json
from headrace.core.errors import (
    CoordinatorLoadingError,
    HeadraceError,
    InvalidRequestError,
    RemoteError,
    ThrottledError,
    UnreleasedInstanceError,
)
from headrace.core.groups import requests
from headrace.core.groups.assignment import Names
from headrace.core.groups.events import Membership, OffsetsAsked, Request
from headrace.core.groups.identity import GroupName, GroupType
from headrace.core.groups.status import GroupReport, parse_group
from headrace.core.limits import GROUP_REQUEST_TIMEOUT_MS
from headrace.core.types import PartitionKey, TopicUid

JSON_TYPE = "application/json"
_NO_NAMES: Names = {}
T = TypeVar("T")

Joined: TypeAlias = tuple[Membership, Mapping[TopicUid, str]]
"""The coordinator's answer to a member, and the names of its topics."""


GroupOffsets: TypeAlias = Mapping[PartitionKey, tuple[str, GroupOffset]]
"""The offsets of a group, each with the topic's name, which is empty where nobody knows it any more."""


def call_of(
    group: GroupName,
    request: Request,
    names: Names,
    url: str | None = None,
    timeout_ms: int = GROUP_REQUEST_TIMEOUT_MS,
) -> Call:
    """Return the call to the coordinator's `url` where that is known, else to any broker, which passes it on."""
    method, path, body = requests.call_of(group, request, names)
    content = () if body is None else (json.dumps(body, separators=(",", ":")).encode(),)
    return Call(method, path, timeout_ms, url, content, JSON_TYPE)


def is_from_coordinator(error: HeadraceError) -> bool:
    """Return whether the broker with this error coordinates the group: it is asked again."""
    return not error.retriable or isinstance(error, UnreleasedInstanceError | ThrottledError | CoordinatorLoadingError)


def offsets_call(
    group: GroupName,
    url: str | None = None,
    partitions: frozenset[PartitionKey] | None = None,
    names: Names = _NO_NAMES,
) -> Call:
    """Return the call for the offsets of the topics of `partitions`, which have `names`; without them, for all."""
    return call_of(group, OffsetsAsked(0, partitions), names, url)


def coordinator_call(group: GroupName, group_type: GroupType = GroupType.CONSUMER) -> Call:
    return Call("GET", f"{_path(group)}/coordinator{requests.type_query(group_type)}", GROUP_REQUEST_TIMEOUT_MS)


def description_call(group: GroupName) -> Call:
    return Call("GET", _path(group), GROUP_REQUEST_TIMEOUT_MS)


def coordinator_url(answer: Answer) -> str | None:
    """Return the coordinator's URL. None: nobody knows a URL of the broker that coordinates."""
    url = parse_json(answer.body).get("url")
    return url if isinstance(url, str) and url else None


def membership(answer: Answer) -> Joined:
    return _understood(requests.parse_membership, answer)


def offsets(answer: Answer) -> GroupOffsets:
    return {
        found.partition: (
            found.topic,
            GroupOffset(int(found.value.offset), found.value.metadata, found.value.committed_ms),
        )
        for found in _understood(requests.parse_offsets, answer)
    }


def description(answer: Answer, group: GroupName) -> GroupReport:
    """Return the report of a group. It may lack a new topic, of which the coordinator has not heard yet."""
    return _understood(lambda body: parse_group(body, group.namespace), answer)


def _understood(parse: Callable[[Any], T], answer: Answer) -> T:
    try:
        return parse(parse_json(answer.body))
    except InvalidRequestError as error:
        raise RemoteError(f"a group's coordinator answers what is none ({error.message}): is it a broker?") from error


def _path(group: GroupName) -> str:
    return f"/v1/namespaces/{quote(group.namespace, safe='')}/groups/{quote(group.name, safe='')}"
